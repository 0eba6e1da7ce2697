-- Documents are changed through one view, a row at a time and in order: what a change
-- makes of a value rests on the value that the change before it left.

ALTER TABLE document_revision ADD COLUMN version INTEGER NOT NULL DEFAULT 1;

CREATE VIEW document_change (scope, owner, name, version, history, fork_policy, op, value, commit_no) AS
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL;

-- op: 'set' (the value), 'merge' (a merge patch, RFC 7396), 'keep' (a merge patch that
-- loses against what is there), 'retire'.
CREATE TRIGGER document_changed INSTEAD OF INSERT ON document_change
BEGIN
    SELECT RAISE(ABORT, 'mooring: the document is of a newer version') WHERE EXISTS (
        SELECT 1 FROM document WHERE scope = NEW.scope AND owner = NEW.owner AND name = NEW.name
            AND retired_commit IS NULL AND version > NEW.version);
    UPDATE document SET retired_commit = NEW.commit_no
    WHERE NEW.op = 'retire' AND scope = NEW.scope AND owner = NEW.owner AND name = NEW.name
        AND retired_commit IS NULL;
    INSERT INTO document (scope, owner, name, version, history, fork_policy, created_commit)
    SELECT NEW.scope, NEW.owner, NEW.name, NEW.version, NEW.history, NEW.fork_policy, NEW.commit_no
    WHERE NEW.op <> 'retire'
    ON CONFLICT (scope, owner, name) WHERE retired_commit IS NULL DO UPDATE SET version = excluded.version;
    INSERT INTO document_revision (document, revision, version, value, commit_no)
    SELECT d.id, coalesce((SELECT max(revision) FROM document_revision WHERE document = d.id), 0) + 1, NEW.version,
        CASE NEW.op
            WHEN 'set' THEN NEW.value
            WHEN 'merge' THEN json_patch(coalesce((SELECT value FROM document_revision WHERE document = d.id
                ORDER BY revision DESC LIMIT 1), '{}'), NEW.value)
            ELSE json_patch(NEW.value, coalesce((SELECT value FROM document_revision WHERE document = d.id
                ORDER BY revision DESC LIMIT 1), '{}'))
        END, NEW.commit_no
    FROM document d
    WHERE NEW.op <> 'retire' AND d.scope = NEW.scope AND d.owner = NEW.owner AND d.name = NEW.name
        AND d.retired_commit IS NULL;
    DELETE FROM document_revision
    WHERE document = (SELECT id FROM document WHERE scope = NEW.scope AND owner = NEW.owner AND name = NEW.name
            AND retired_commit IS NULL AND history = 'latest')
        AND revision < (SELECT max(revision) FROM document_revision r WHERE r.document = document_revision.document);
END;

-- What a fork takes along: of the parent what its policy calls current, and of the
-- conversation of the fork's entry what stood at the end of that entry's commit.
CREATE VIEW document_fork (child, parent, source, as_of, commit_no) AS SELECT NULL, NULL, NULL, NULL, NULL;

CREATE TRIGGER document_forked INSTEAD OF INSERT ON document_fork
BEGIN
    INSERT INTO document (scope, owner, name, version, history, fork_policy, created_commit)
    SELECT 'conversation', NEW.child, name, version, history, fork_policy, NEW.commit_no FROM document
    WHERE scope = 'conversation'
        AND ((fork_policy = 'current' AND owner = NEW.parent AND retired_commit IS NULL)
            OR (fork_policy = 'asOf' AND owner = NEW.source AND created_commit <= NEW.as_of
                AND (retired_commit IS NULL OR retired_commit > NEW.as_of)));
    INSERT INTO document_revision (document, revision, version, value, commit_no)
    SELECT child.id, 1, r.version, r.value, NEW.commit_no
    FROM document child
    JOIN document old ON old.scope = 'conversation' AND old.name = child.name AND old.fork_policy = child.fork_policy
        AND ((old.fork_policy = 'current' AND old.owner = NEW.parent AND old.retired_commit IS NULL)
            OR (old.fork_policy = 'asOf' AND old.owner = NEW.source AND old.created_commit <= NEW.as_of
                AND (old.retired_commit IS NULL OR old.retired_commit > NEW.as_of)))
    JOIN document_revision r ON r.document = old.id AND r.revision = (SELECT max(revision) FROM document_revision
        WHERE document = old.id AND (old.fork_policy = 'current' OR commit_no <= NEW.as_of))
    WHERE child.scope = 'conversation' AND child.owner = NEW.child;
    UPDATE document SET version = (SELECT version FROM document_revision WHERE document = document.id)
    WHERE scope = 'conversation' AND owner = NEW.child;
END;

-- A task's documents retire with the task.
CREATE TRIGGER task_ended AFTER UPDATE OF ended_at ON task
WHEN NEW.ended_at IS NOT NULL AND OLD.ended_at IS NULL
BEGIN
    UPDATE document SET retired_commit = NEW.changed_commit
    WHERE scope = 'task' AND owner = NEW.id AND retired_commit IS NULL;
END;

-- Which conversations a task owns.
CREATE INDEX conversation_owner ON conversation (owner_task) WHERE owner_task IS NOT NULL;
