-- Messages that replied to the card of an open question: found again by a sweep of
-- history, they are what they were, and no inputs.
CREATE TABLE mooring_answer (
  request_id TEXT PRIMARY KEY,
  question INTEGER NOT NULL,       -- its task
  counted INTEGER NOT NULL,        -- 0: not from somebody who may answer it
  at INTEGER NOT NULL
) WITHOUT ROWID;

-- Conversations that work for a run, as its anchor shows them.
CREATE TABLE mooring_child (
  conversation INTEGER PRIMARY KEY,
  anchor TEXT NOT NULL,            -- key of the outbox row that posts the run's anchor
  name TEXT NOT NULL,
  state TEXT NOT NULL,
  tool_calls INTEGER NOT NULL,
  tokens INTEGER NOT NULL
);
CREATE INDEX mooring_child_anchor ON mooring_child (anchor);

-- The newest anchor of a conversation, and what a reply to a question's card answers.
CREATE INDEX mooring_outbox_anchor ON mooring_outbox (conversation, seq) WHERE kind = 'anchor';
CREATE INDEX mooring_outbox_question ON mooring_outbox (message_id) WHERE kind = 'question';
