-- Grants: "for this conversation", "for this workspace until". Never deleted.
CREATE TABLE mooring_grant (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  conversation INTEGER,            -- NULL: the workspace
  tool TEXT NOT NULL,
  rule TEXT NOT NULL,              -- JSON: exactly what it covers
  asked_by TEXT NOT NULL,          -- the rule that asked
  given_by TEXT NOT NULL,
  given_at INTEGER NOT NULL,
  expires_at INTEGER,
  revoked_at INTEGER,
  revoked_by TEXT
);

-- One row per decision of the gate about a call, completed by its outcome.
CREATE TABLE mooring_audit (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  at INTEGER NOT NULL,
  conversation INTEGER NOT NULL,
  call INTEGER NOT NULL,           -- task of the call
  tool TEXT NOT NULL,
  arguments_hash TEXT NOT NULL,
  requesters TEXT NOT NULL,        -- JSON
  verdict TEXT NOT NULL,
  record TEXT NOT NULL,            -- JSON: facts, rules, digest
  decision TEXT,                   -- JSON: approver, via, scope, time
  outcome TEXT,
  ended_at INTEGER
);
CREATE INDEX mooring_audit_call ON mooring_audit (call);
CREATE INDEX mooring_audit_conversation ON mooring_audit (conversation, id);

-- Spend that was settled, added up.
CREATE TABLE mooring_usage (
  day TEXT NOT NULL,               -- UTC
  conversation INTEGER NOT NULL,
  model TEXT NOT NULL,
  requester TEXT NOT NULL,         -- the first of the run: it is charged
  requests INTEGER NOT NULL,
  input INTEGER NOT NULL,
  cached INTEGER NOT NULL,
  output INTEGER NOT NULL,
  cost_micros INTEGER NOT NULL,
  unpriced INTEGER NOT NULL,       -- requests without a known price
  unknown INTEGER NOT NULL,        -- requests of unknown size, counted by estimate
  PRIMARY KEY (day, conversation, model, requester)
) WITHOUT ROWID;

-- Spend of requests in flight.
CREATE TABLE mooring_reservation (
  task INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  run INTEGER NOT NULL,
  model TEXT NOT NULL,
  estimate INTEGER NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (task, attempt)
) WITHOUT ROWID;

-- Discord threads and parent channels, with the cursor of each.
CREATE TABLE mooring_thread (
  thread_id TEXT PRIMARY KEY,
  channel_id TEXT NOT NULL,
  conversation INTEGER,            -- NULL: a parent channel
  cursor TEXT NOT NULL,            -- highest message id below which all is ledgered
  anchor TEXT,                     -- message id of the newest anchor
  name TEXT NOT NULL,
  deleted INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX mooring_thread_conversation ON mooring_thread (conversation);

-- What is to be shown, in the order in which it was caused.
CREATE TABLE mooring_outbox (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  key TEXT NOT NULL UNIQUE,        -- conversation, turn, part: the nonce comes from it
  thread_id TEXT NOT NULL,
  conversation INTEGER NOT NULL,
  kind TEXT NOT NULL,
  json TEXT NOT NULL,
  target TEXT,                     -- key of the row whose message is edited
  reply_to TEXT,
  created_at INTEGER NOT NULL,
  first_offered_at INTEGER,
  next_at INTEGER NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  message_id TEXT,
  closed_at INTEGER,
  closed TEXT                      -- delivered, replaced, or why it cannot be delivered
);
CREATE INDEX mooring_outbox_open ON mooring_outbox (thread_id, seq) WHERE closed_at IS NULL;
CREATE INDEX mooring_outbox_target ON mooring_outbox (target) WHERE target IS NOT NULL;
