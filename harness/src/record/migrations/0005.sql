-- Connections of commands to the world: what was asked for, and what became of it.
CREATE TABLE mooring_egress (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  key INTEGER NOT NULL UNIQUE,     -- generation of the harness and a number in it
  at INTEGER NOT NULL,
  ended_at INTEGER,
  conversation INTEGER NOT NULL,
  call INTEGER NOT NULL,           -- task of the call whose command connected
  host TEXT NOT NULL,
  port INTEGER NOT NULL,
  verdict TEXT NOT NULL,           -- of the policy: allow, ask, deny
  rule TEXT NOT NULL,              -- that decided
  sent INTEGER NOT NULL DEFAULT 0, -- bytes
  received INTEGER NOT NULL DEFAULT 0,
  outcome TEXT                     -- done, or why not
);
CREATE INDEX mooring_egress_conversation ON mooring_egress (conversation, id);

-- Bytes of all connections, both ways together.
CREATE TABLE mooring_egress_day (
  day TEXT PRIMARY KEY,            -- UTC
  bytes INTEGER NOT NULL
) WITHOUT ROWID;
