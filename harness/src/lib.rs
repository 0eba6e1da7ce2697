//! One per workspace: binds engine, models, policy, sandbox, approvals and budgets
