-- Keys that the harness makes itself and that have to outlive it.
CREATE TABLE mooring_secret (
  name TEXT PRIMARY KEY,
  value BLOB NOT NULL              -- 32 random bytes
) WITHOUT ROWID;
