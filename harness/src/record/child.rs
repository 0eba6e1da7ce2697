//! Conversations that work for a run, under the run's anchor: each change of one is
//! an edit of that anchor, written in the commit of the change.

use mooring_durable::{
    id::{ConversationId, Millis},
    ledger::{Bind, Run, Statement},
};

use super::{outbox::children, text};

/// How a conversation stands that may work for another: rows for the anchor of the
/// newest run of the nearest owner with a thread. None where nobody owns it, or that run
/// has ended. `key` names the edit, which waits until `due` as other edits do.
pub fn changed(at: Millis, due: Millis, run: &Run, state: &str, key: &str) -> [Statement; 3] {
    let conversation = Bind::Int(run.conversation.0);
    [
        stands(run.conversation, run, state),
        Statement {
            sql: concat!(
                "INSERT INTO mooring_outbox
                   (key, thread_id, conversation, kind, json, target, created_at, next_at)
                 SELECT ?2, o.thread_id, o.conversation, 'anchor-edit',
                   json_set(coalesce((SELECT e.json FROM mooring_outbox e WHERE e.target = o.key
                                      ORDER BY e.seq DESC LIMIT 1), o.json),
                            '$.children', ",
                children!("o.key"),
                "),
                   o.key, ?3, min(?4, coalesce((SELECT min(next_at) FROM mooring_outbox
                                                WHERE target = o.key AND closed_at IS NULL), ?4))
                 FROM mooring_child c JOIN mooring_outbox o ON o.key = c.anchor
                 WHERE c.conversation = ?1
                   AND NOT EXISTS (SELECT 1 FROM mooring_outbox e WHERE e.key = o.key || '-end')
                 ON CONFLICT (key) DO NOTHING"
            ),
            binds: vec![conversation, text(key), Bind::Int(at.0), Bind::Int(due.0)],
        },
        Statement {
            sql: "UPDATE mooring_outbox SET closed_at = ?2, closed = 'replaced'
                  WHERE target = (SELECT target FROM mooring_outbox WHERE key = ?1)
                    AND key <> ?1 AND closed_at IS NULL",
            binds: vec![text(key), Bind::Int(at.0)],
        },
    ]
}

fn stands(conversation: ConversationId, run: &Run, state: &str) -> Statement {
    Statement {
        sql: "INSERT INTO mooring_child (conversation, anchor, name, state, tool_calls, tokens)
              SELECT ?1, o.key, CASE c.title WHEN '' THEN 'conversation ' || c.id ELSE c.title END,
                ?2, ?3, ?4
              FROM conversation c JOIN mooring_outbox o ON o.key = (
                SELECT a.key
                FROM (WITH RECURSIVE up(id, depth) AS (
                        SELECT owner_conversation, 0 FROM conversation
                        WHERE id = ?1 AND owner_conversation IS NOT NULL
                        UNION ALL
                        SELECT p.owner_conversation, up.depth + 1
                        FROM up JOIN conversation p ON p.id = up.id
                        WHERE p.owner_conversation IS NOT NULL AND up.depth < 20)
                      SELECT up.id FROM up
                      JOIN mooring_thread t ON t.conversation = up.id AND t.deleted = 0
                      ORDER BY up.depth LIMIT 1) AS home
                JOIN mooring_outbox a ON a.conversation = home.id AND a.kind = 'anchor'
                ORDER BY a.seq DESC LIMIT 1)
              WHERE c.id = ?1
                AND NOT EXISTS (SELECT 1 FROM mooring_outbox e WHERE e.key = o.key || '-end')
              ON CONFLICT (conversation) DO UPDATE SET anchor = excluded.anchor,
                state = excluded.state, tool_calls = excluded.tool_calls, tokens = excluded.tokens",
        binds: vec![
            Bind::Int(conversation.0),
            text(state),
            Bind::Int(run.tool_calls.into()),
            Bind::Int(i64::try_from(run.usage.input + run.usage.output).unwrap_or(i64::MAX)),
        ],
    }
}
