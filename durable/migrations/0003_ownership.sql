-- Which task owns a conversation is told with where that task is, so that its end finds
-- its way; work in the background is neither waited for nor aborted with its owner.
ALTER TABLE conversation ADD COLUMN owner_conversation INTEGER;
ALTER TABLE conversation ADD COLUMN background INTEGER NOT NULL DEFAULT 0;

-- What a call waits for: timers, questions, conversations of its own.
CREATE INDEX task_child ON task (owner_task) WHERE kind IN ('mooring.timer', 'mooring.input', 'mooring.subagent');
