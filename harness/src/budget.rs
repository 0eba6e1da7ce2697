//! What one run may spend: checked before each request and each round of calls.

use mooring_crds::{PerRunBudget, duration};
use mooring_durable::ledger::{Refusal, Run};

/// May `run` send another request of about `estimate` tokens, which would cost
/// about `cost` on top of `spent` (millionths of a US dollar)?
pub fn admit_request(
    limits: &PerRunBudget,
    run: &Run,
    estimate: u64,
    spent_micros: i64,
    cost_micros: i64,
) -> Result<(), Refusal> {
    if let Some(limit) = limits.turns
        && run.turns >= limit
    {
        return refuse(format!(
            "all {limit} turns of this run are used (budgets.perRun.turns)"
        ));
    }
    if let Some(limit) = limits.tokens {
        let used = run.usage.input.saturating_add(run.usage.output);
        if used.saturating_add(estimate) > limit {
            return refuse(format!(
                "{used} of {limit} tokens of this run are used and the next request needs about {estimate} (budgets.perRun.tokens)"
            ));
        }
    }
    if let Some(limit) = limits
        .cost_usd
        .as_deref()
        .and_then(|t| duration::usd_micros(t).ok())
        && spent_micros.saturating_add(cost_micros) > limit
    {
        return refuse(format!(
            "${:.4} of ${:.2} of this run are spent and the next request costs about ${:.4} (budgets.perRun.costUsd)",
            usd(spent_micros),
            usd(limit),
            usd(cost_micros)
        ));
    }
    let wall = limits
        .wall_time
        .as_deref()
        .and_then(|t| duration::duration(t).ok())
        .flatten();
    if let Some(limit) = wall
        && u128::from(run.active_ms) >= limit.as_millis()
    {
        return refuse(format!(
            "{} s of {} s of model and tool time are used (budgets.perRun.wallTime)",
            run.active_ms / 1000,
            limit.as_secs()
        ));
    }
    Ok(())
}

/// May `run` make `calls` more calls?
pub fn admit_calls(limits: &PerRunBudget, run: &Run, calls: u32) -> Result<(), Refusal> {
    match limits.tool_calls {
        Some(limit) if run.tool_calls.saturating_add(calls) > limit => refuse(format!(
            "{} of {limit} tool calls of this run are used and the model wants {calls} more (budgets.perRun.toolCalls)",
            run.tool_calls
        )),
        _ => Ok(()),
    }
}

fn refuse(detail: String) -> Result<(), Refusal> {
    Err(Refusal {
        detail: format!("{detail}; a new message starts a new run"),
    })
}

fn usd(micros: i64) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use mooring_durable::{
        id::{ConversationId, Millis, SubmissionId},
        ledger::RunState,
        model::Usage,
    };

    fn run(turns: u32, tool_calls: u32, tokens: u64, active_ms: u64) -> Run {
        Run {
            id: SubmissionId(1),
            conversation: ConversationId(1),
            requesters: Vec::new(),
            started_at: Millis(0),
            turns,
            tool_calls,
            usage: Usage {
                input: tokens,
                cached: 0,
                output: 0,
            },
            active_ms,
            model: "m".into(),
            state: RunState::Preparing,
            note: String::new(),
        }
    }

    #[test]
    fn each_limit_refuses_at_its_bound_and_names_itself() {
        let limits = PerRunBudget {
            turns: Some(2),
            tool_calls: Some(3),
            tokens: Some(100),
            cost_usd: Some("1".into()),
            wall_time: Some("1m".into()),
        };
        let refused = |run: &Run, estimate, spent, cost| {
            admit_request(&limits, run, estimate, spent, cost)
                .err()
                .map(|r| r.detail)
        };
        assert_eq!(refused(&run(1, 0, 0, 0), 100, 0, 0), None);
        for (told, name) in [
            (refused(&run(2, 0, 0, 0), 1, 0, 0), "perRun.turns"),
            (refused(&run(0, 0, 60, 0), 41, 0, 0), "perRun.tokens"),
            (refused(&run(0, 0, 0, 0), 1, 999_999, 2), "perRun.costUsd"),
            (refused(&run(0, 0, 0, 60_000), 1, 0, 0), "perRun.wallTime"),
        ] {
            assert!(told.is_some_and(|t| t.contains(name)), "{name}");
        }
        assert!(admit_calls(&limits, &run(0, 2, 0, 0), 1).is_ok());
        assert!(admit_calls(&limits, &run(0, 2, 0, 0), 2).is_err());
        assert!(admit_request(&PerRunBudget::default(), &run(99, 99, 99, 99), 9, 9, 9).is_ok());
    }
}
