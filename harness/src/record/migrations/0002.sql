-- Messages that were refused because a run was going: found again by a sweep of
-- history, they stay refused.
CREATE TABLE mooring_refused (
  request_id TEXT PRIMARY KEY,
  at INTEGER NOT NULL
) WITHOUT ROWID;
