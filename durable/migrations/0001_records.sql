-- All record kinds. Never edited after it lands; later changes are files of their own.

-- The session: who owns the file, the clock of commits, and the counters that
-- ids come from. One row.
CREATE TABLE session (
    one               INTEGER PRIMARY KEY CHECK (one = 1),
    incarnation       TEXT    NOT NULL,
    generation        INTEGER NOT NULL,
    commit_no         INTEGER NOT NULL,
    next_conversation INTEGER NOT NULL,
    next_entry        INTEGER NOT NULL,
    next_task         INTEGER NOT NULL,
    next_submission   INTEGER NOT NULL,
    created_at        INTEGER NOT NULL
) STRICT;

-- A commit by an owner that has been superseded fails as a whole.
CREATE TRIGGER session_owner BEFORE UPDATE OF commit_no ON session
WHEN NEW.generation <> OLD.generation
BEGIN
    SELECT RAISE(ABORT, 'mooring: superseded');
END;

CREATE TABLE conversation (
    id             INTEGER PRIMARY KEY,
    parent         INTEGER,            -- whose history is inherited …
    parent_entry   INTEGER,            -- … through this entry
    owner_task     INTEGER,            -- governs abort and idle
    side_chat      INTEGER NOT NULL DEFAULT 0,
    title          TEXT    NOT NULL,
    settings       TEXT    NOT NULL,
    model          TEXT    NOT NULL,
    created_at     INTEGER NOT NULL,
    last_at        INTEGER NOT NULL,
    created_commit INTEGER NOT NULL,
    deleted_commit INTEGER
) STRICT;

-- What a fork sees of its ancestors: one row per ancestor, nearest first.
CREATE TABLE inherited (
    conversation INTEGER NOT NULL,
    depth        INTEGER NOT NULL,
    source       INTEGER NOT NULL,
    through_seq  INTEGER NOT NULL,
    PRIMARY KEY (conversation, depth)
) STRICT, WITHOUT ROWID;

CREATE TABLE entry (
    id           INTEGER PRIMARY KEY,
    conversation INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    kind         TEXT    NOT NULL,
    state        TEXT    NOT NULL,     -- '', 'aborted', 'error'
    message      TEXT,
    data         TEXT,
    head         INTEGER,              -- the context begins at this entry
    edits        TEXT,                 -- [{target, replace?}]
    writer       INTEGER,              -- task
    submission   INTEGER,
    at           INTEGER NOT NULL,
    commit_no    INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX entry_seq ON entry (conversation, seq);
CREATE INDEX entry_head ON entry (conversation, seq) WHERE head IS NOT NULL;

CREATE TABLE document (
    id             INTEGER PRIMARY KEY, -- the incarnation of its address
    scope          TEXT    NOT NULL CHECK (scope IN ('session', 'conversation', 'task')),
    owner          INTEGER NOT NULL,
    name           TEXT    NOT NULL,
    version        INTEGER NOT NULL,
    history        TEXT    NOT NULL CHECK (history IN ('latest', 'rewindable')),
    fork_policy    TEXT    NOT NULL CHECK (fork_policy IN ('initial', 'current', 'asOf')),
    created_commit INTEGER NOT NULL,
    retired_commit INTEGER
) STRICT;
CREATE UNIQUE INDEX document_address ON document (scope, owner, name) WHERE retired_commit IS NULL;
CREATE TABLE document_revision (
    document  INTEGER NOT NULL,
    revision  INTEGER NOT NULL,
    value     TEXT    NOT NULL,
    commit_no INTEGER NOT NULL,
    PRIMARY KEY (document, revision)
) STRICT, WITHOUT ROWID;

CREATE TABLE task (
    id             INTEGER PRIMARY KEY,
    conversation   INTEGER NOT NULL,
    owner_task     INTEGER,            -- none: owned by the conversation
    kind           TEXT    NOT NULL,
    version        INTEGER NOT NULL,
    background     INTEGER NOT NULL,
    status         TEXT    NOT NULL,
    blocked        INTEGER NOT NULL DEFAULT 0,
    abort_mark     INTEGER,            -- the next submission's id when it was marked
    waits          TEXT,
    input          TEXT,
    checkpoint     TEXT,
    outcome        TEXT,
    created_at     INTEGER NOT NULL,
    ended_at       INTEGER,
    created_commit INTEGER NOT NULL,
    changed_commit INTEGER NOT NULL
) STRICT;
-- Approvals of a call, which owns them.
CREATE INDEX task_approval ON task (owner_task) WHERE kind = 'mooring.approval';

-- Open tasks and unsettled submissions; small, whatever the history.
-- wake_at: 0 is runnable now, NULL waits for an event, else a time.
CREATE TABLE open_work (
    conversation INTEGER NOT NULL,
    what         INTEGER NOT NULL,     -- 0 generation, 1 call, 2 approval, 3 submission
    id           INTEGER NOT NULL,
    wake_at      INTEGER,
    PRIMARY KEY (conversation, what, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX open_work_wake ON open_work (wake_at) WHERE wake_at IS NOT NULL;

-- A tool call beside its task of kind pi.tool.
CREATE TABLE call (
    task         INTEGER PRIMARY KEY,
    conversation INTEGER NOT NULL,
    generation   INTEGER NOT NULL,     -- task
    ordinal      INTEGER NOT NULL,
    call_id      TEXT    NOT NULL,
    tool         TEXT    NOT NULL,
    arguments    TEXT,                 -- NULL: as the model sent them
    hash         BLOB,                 -- SHA-256 of the final arguments' JSON
    replay       TEXT,                 -- as declared at the intent
    binding      TEXT,
    record       TEXT,                 -- of the gate
    state        TEXT    NOT NULL,
    note         TEXT    NOT NULL,
    offset       INTEGER NOT NULL,     -- output bytes that the checkpoint holds
    started_at   INTEGER,
    ended_at     INTEGER,
    released     INTEGER NOT NULL,
    owed_kill    INTEGER NOT NULL
) STRICT;
CREATE INDEX call_owed ON call (task) WHERE released = 0 OR owed_kill = 1;

CREATE TABLE chunk (
    task   INTEGER NOT NULL,
    stream INTEGER NOT NULL,           -- 0 answer, 1 thinking, 2 output
    offset INTEGER NOT NULL,
    length INTEGER NOT NULL,           -- bytes of the stream, which text may replace
    text   TEXT    NOT NULL,
    PRIMARY KEY (task, stream, offset)
) STRICT, WITHOUT ROWID;

-- Prompt sections, tool schemas and options, once by SHA-256.
CREATE TABLE part (
    hash BLOB PRIMARY KEY,
    body TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE attempt (
    task         INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    model        TEXT    NOT NULL,
    adapter      TEXT    NOT NULL,
    options      BLOB    NOT NULL,     -- part
    tools        BLOB    NOT NULL,     -- part
    cutoff       INTEGER NOT NULL,     -- the newest entry in the request
    request      BLOB    NOT NULL,     -- SHA-256 of the canonical request
    estimate     INTEGER NOT NULL,
    recoveries   INTEGER NOT NULL,
    started_at   INTEGER NOT NULL,
    ended_at     INTEGER,
    ended        TEXT,
    usage        TEXT,
    PRIMARY KEY (task, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE submission (
    id              INTEGER PRIMARY KEY,
    conversation    INTEGER NOT NULL,
    type            TEXT    NOT NULL CHECK (type IN ('input', 'write')),
    request_id      TEXT,
    requester       TEXT    NOT NULL,
    content         TEXT,              -- NULL once it is in its entry
    when_busy       TEXT    NOT NULL,
    autonomous      INTEGER NOT NULL,
    data            TEXT,
    state           TEXT    NOT NULL CHECK (state IN ('queued', 'placed', 'done', 'unanswered')),
    reason          TEXT,
    detail          TEXT,
    entry           INTEGER,           -- where it was placed
    answer          INTEGER,           -- what answered it
    at              INTEGER NOT NULL,
    created_commit  INTEGER NOT NULL,
    settled_commit  INTEGER
) STRICT;
-- In this order it also finds a request whose conversation the caller does not know.
CREATE UNIQUE INDEX submission_request ON submission (request_id, conversation) WHERE request_id IS NOT NULL;
