//! What a Workspace's shape cannot say: rules over its values, with field paths.

use std::collections::BTreeMap;
use std::fmt::Display;

use crate::duration::{duration, usd_micros};
use crate::{
    Approvals, Budgets, DiscordSpec, McpServer, Member, ModelSpec, Policy, PolicyTest, Price,
    Provider, Repo, Retention, SandboxSpec, WorkspaceSpec,
};

/// One thing that is wrong with a Workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where, as a field path (`spec.models[1].endpoint`).
    pub path: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// [`validate`], and what only a cluster demands: operator and harness refuse the same.
pub fn validate_in_cluster(spec: &WorkspaceSpec) -> Vec<Problem> {
    let mut problems = validate(spec);
    for (index, model) in spec.models.iter().enumerate() {
        if model.api_key_secret_ref.is_none()
            && model.provider != Provider::Rehearsal
            && model.endpoint.is_none()
        {
            problems.push(Problem {
                path: format!("spec.models[{index}].apiKeySecretRef"),
                message: "in a cluster the key comes from a Secret: name and key are needed".into(),
            });
        }
    }
    for (index, server) in spec.mcp.iter().enumerate() {
        if !server.headers_env.is_empty() && server.headers_secret_ref.is_none() {
            problems.push(Problem {
                path: format!("spec.mcp[{index}].headersEnv"),
                message: "in a cluster headers come from a Secret: headersSecretRef names it"
                    .into(),
            });
        }
    }
    problems
}

/// All that is wrong with `spec`; empty where nothing is.
pub fn validate(spec: &WorkspaceSpec) -> Vec<Problem> {
    let mut problems = Problems(Vec::new());
    if let Some(repo) = &spec.repo {
        problems.repo(repo);
    }
    if let Some(discord) = &spec.discord {
        problems.discord(discord);
    }
    problems.models(&spec.models);
    problems.members(&spec.members);
    problems.policy(&spec.policy);
    problems.approvals(&spec.approvals);
    problems.budgets(&spec.budgets);
    problems.mcp(&spec.mcp);
    problems.retention(&spec.retention);
    problems.sandbox(&spec.sandbox);
    problems.0
}

struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, path: impl Display, message: impl Into<String>) {
        self.0.push(Problem {
            path: format!("spec.{path}"),
            message: message.into(),
        });
    }

    fn check<T>(&mut self, path: impl Display, result: Result<T, String>) {
        if let Err(message) = result {
            self.add(path, message);
        }
    }

    fn repo(&mut self, repo: &Repo) {
        let alone = Repo {
            url: String::new(),
            reference: None,
            credentials_secret_ref: None,
            partial_clone: false,
            also_fetch: Vec::new(),
            worktrees: repo.worktrees,
        };
        if *repo != alone || repo.worktrees.is_default() {
            self.check("repo.url", repo_url(&repo.url));
        }
        for (at, url) in repo.also_fetch.iter().enumerate() {
            self.check(format_args!("repo.alsoFetch[{at}]"), repo_url(url));
            if *url == repo.url || repo.also_fetch[..at].contains(url) {
                self.add(format_args!("repo.alsoFetch[{at}]"), "is there already");
            }
        }
        if let Some(secret) = &repo.credentials_secret_ref
            && (secret.name.is_empty() || secret.name.contains('/'))
        {
            self.add("repo.credentialsSecretRef.name", "is no name of a Secret");
        }
        if repo
            .reference
            .as_deref()
            .is_some_and(|reference| !is_reference(reference))
        {
            self.add("repo.ref", "is no name of a branch, tag or commit");
        }
    }

    fn discord(&mut self, discord: &DiscordSpec) {
        for (field, id) in [
            ("guildId", &discord.guild_id),
            ("channelId", &discord.channel_id),
        ] {
            self.check(format_args!("discord.{field}"), discord_id(id));
        }
        if discord.attachments.bytes().is_none() {
            self.add(
                "discord.attachments.maxBytes",
                "has to be a number of bytes such as 10Mi or 512Ki",
            );
        }
        if discord.attachments.max_count > 10 {
            self.add(
                "discord.attachments.maxCount",
                "Discord allows 10 files a message",
            );
        }
    }

    fn models(&mut self, models: &[ModelSpec]) {
        if models.is_empty() {
            self.add(
                "models",
                "at least one model is needed; `provider: rehearsal` needs no key",
            );
        }
        let mut first = BTreeMap::new();
        for (at, model) in models.iter().enumerate() {
            let path = format!("models[{at}]");
            if let Some(other) = first.get(model.name.as_str()) {
                self.add(
                    format_args!("{path}.name"),
                    format!("{:?} is also the name of models[{other}]", model.name),
                );
            } else {
                first.insert(model.name.as_str(), at);
            }
            self.model(&path, model);
        }
    }

    fn model(&mut self, path: &str, model: &ModelSpec) {
        if model.name.is_empty()
            || model
                .name
                .chars()
                .any(|c| c.is_whitespace() || c.is_control())
        {
            self.add(
                format_args!("{path}.name"),
                "has to be a word without blanks",
            );
        }
        if model.model.is_empty() && model.provider != Provider::Rehearsal {
            self.add(
                format_args!("{path}.model"),
                "is needed: the provider's name of the model",
            );
        }
        if let Some(endpoint) = &model.endpoint {
            self.check(format_args!("{path}.endpoint"), endpoint_url(endpoint));
        }
        if let Some(name) = &model.api_key_env {
            self.check(format_args!("{path}.apiKeyEnv"), env_name(name));
        }
        if let Some(secret) = &model.api_key_secret_ref {
            for (field, value) in [("name", &secret.name), ("key", &secret.key)] {
                if value.is_empty() {
                    self.add(format_args!("{path}.apiKeySecretRef.{field}"), "is empty");
                }
            }
        }
        for (field, tokens) in [
            ("contextWindow", model.context_window),
            ("maxOutput", model.max_output),
        ] {
            if tokens == Some(0) {
                self.add(format_args!("{path}.{field}"), "has to be above 0");
            }
        }
        if let (Some(output), Some(window)) = (model.max_output, model.context_window)
            && window > 0
            && output > window
        {
            self.add(
                format_args!("{path}.maxOutput"),
                format!("{output} is more than the contextWindow of {window}"),
            );
        }
        if let Some(price) = &model.price {
            self.price(path, price);
        }
    }

    fn price(&mut self, path: &str, price: &Price) {
        for (field, value) in [
            ("input", Some(price.input)),
            ("cachedInput", price.cached_input),
            ("output", Some(price.output)),
        ] {
            if value.is_some_and(|value| !value.is_finite() || value < 0.0) {
                self.add(
                    format_args!("{path}.price.{field}"),
                    "has to be 0 or more US dollars per million tokens",
                );
            }
        }
    }

    fn members(&mut self, members: &[Member]) {
        let mut first = BTreeMap::new();
        for (at, member) in members.iter().enumerate() {
            let path = format!("members[{at}]");
            let name = match (&member.discord_user_id, &member.discord_role_id) {
                (Some(id), None) => ("discordUserId", id),
                (None, Some(id)) => ("discordRoleId", id),
                _ => {
                    self.add(
                        path,
                        "a member is either a discordUserId or a discordRoleId",
                    );
                    continue;
                }
            };
            self.check(format_args!("{path}.{}", name.0), discord_id(name.1));
            if let Some(other) = first.insert(name, at) {
                self.add(
                    format_args!("{path}.{}", name.0),
                    format!(
                        "{} is also members[{other}]; one entry has one role",
                        name.1
                    ),
                );
            }
            match &member.kubernetes_user {
                Some(user) if user.is_empty() => {
                    self.add(format_args!("{path}.kubernetesUser"), "is empty");
                }
                Some(_) if member.discord_user_id.is_none() => self.add(
                    format_args!("{path}.kubernetesUser"),
                    "names one person, so it stands beside a discordUserId",
                ),
                _ => {}
            }
        }
    }

    fn policy(&mut self, policy: &Policy) {
        for (name, table) in [
            ("tool", &policy.tool),
            ("bash", &policy.bash),
            ("path", &policy.path),
            ("mcp", &policy.mcp),
            ("git", &policy.git),
            ("egress", &policy.egress),
        ] {
            for pattern in table.keys() {
                if pattern.trim().is_empty() {
                    self.add(
                        format_args!("policy.{name}"),
                        "an empty pattern matches nothing; `*` matches everything",
                    );
                } else if pattern.contains('\0') {
                    self.add(
                        format_args!("policy.{name}"),
                        format!("the pattern {pattern:?} holds a zero byte, which nothing has"),
                    );
                }
            }
        }
        for pattern in policy.egress.keys() {
            if let Err(why) = crate::policy::egress_pattern(pattern) {
                self.add("policy.egress", format!("the pattern {pattern:?} {why}"));
            }
        }
        for (at, test) in policy.tests.iter().enumerate() {
            let PolicyTest {
                tool,
                bash,
                path,
                git,
                egress,
                expect: _,
            } = test;
            let given: Vec<&String> = [tool, bash, path, git, egress]
                .into_iter()
                .flatten()
                .collect();
            if given.len() != 1 {
                self.add(
                    format_args!("policy.tests[{at}]"),
                    "a test has exactly one of tool, bash, path, git and egress",
                );
            } else if given[0].trim().is_empty() {
                self.add(
                    format_args!("policy.tests[{at}]"),
                    "has nothing to be decided",
                );
            }
        }
    }

    fn mcp(&mut self, servers: &[McpServer]) {
        let mut first = BTreeMap::new();
        for (at, server) in servers.iter().enumerate() {
            let path = format!("mcp[{at}]");
            if !is_server_name(&server.name) {
                self.add(
                    format_args!("{path}.name"),
                    "has to be at most 24 small letters, digits and single dashes, and begin with a letter",
                );
            }
            if let Some(other) = first.insert(server.name.as_str(), at) {
                self.add(
                    format_args!("{path}.name"),
                    format!("{:?} is also the name of mcp[{other}]", server.name),
                );
            }
            match (&server.url, server.command.first()) {
                (Some(url), None) => self.check(format_args!("{path}.url"), endpoint_url(url)),
                (None, Some(program)) => {
                    if program.is_empty() || server.command.iter().any(|word| word.contains('\0')) {
                        self.add(format_args!("{path}.command"), "is no command line");
                    }
                }
                _ => self.add(&path, "a server has either a url or a command"),
            }
            let has_headers = server.headers_secret_ref.is_some() || !server.headers_env.is_empty();
            if has_headers && server.url.is_none() {
                self.add(&path, "headers are for a server with a url");
            }
            for (header, variable) in &server.headers_env {
                if !is_header_name(header) {
                    self.add(
                        format_args!("{path}.headersEnv"),
                        format!("{header:?} is no name of a header"),
                    );
                }
                self.check(
                    format_args!("{path}.headersEnv[{header:?}]"),
                    env_name(variable),
                );
            }
        }
    }

    fn approvals(&mut self, approvals: &Approvals) {
        let timeout = duration(&approvals.timeout).and_then(|timeout| match timeout {
            Some(timeout) if timeout.is_zero() => Err("has to be above 0, or never".into()),
            timeout => Ok(timeout),
        });
        self.check("approvals.timeout", timeout);
    }

    fn budgets(&mut self, budgets: &Budgets) {
        let run = &budgets.per_run;
        for (field, limit) in [
            ("turns", run.turns.map(u64::from)),
            ("toolCalls", run.tool_calls.map(u64::from)),
            ("tokens", run.tokens),
        ] {
            if limit == Some(0) {
                self.add(
                    format_args!("budgets.perRun.{field}"),
                    "0 would refuse every run; leave it away for no limit",
                );
            }
        }
        if let Some(cost) = &run.cost_usd {
            self.check("budgets.perRun.costUsd", usd_micros(cost));
        }
        if let Some(time) = &run.wall_time {
            let time = duration(time).and_then(|time| match time {
                None => Err("leave it away for no limit".to_owned()),
                Some(time) if time.is_zero() => Err("0 would refuse every run".into()),
                Some(time) => Ok(time),
            });
            self.check("budgets.perRun.wallTime", time);
        }
    }

    fn retention(&mut self, retention: &Retention) {
        for (field, time) in [
            ("transcripts", &retention.transcripts),
            ("audit", &retention.audit),
        ] {
            let Some(time) = time else { continue };
            let time = duration(time).and_then(|time| match time {
                None => Err("leave it away to keep them for ever".to_owned()),
                Some(time) if time.is_zero() => Err("0 would keep nothing at all".into()),
                Some(time) => Ok(time),
            });
            self.check(format_args!("retention.{field}"), time);
        }
    }

    fn sandbox(&mut self, sandbox: &SandboxSpec) {
        for (name, value) in &sandbox.env {
            let path = format!("sandbox.env.{name}");
            self.check(&path, env_name(name));
            if value.contains('\0') {
                self.add(&path, "holds a zero byte, which no environment can");
            }
        }
        for (at, folder) in sandbox.read_only.iter().enumerate() {
            if !(folder.starts_with('/') || folder.starts_with("~/")) {
                self.add(
                    format_args!("sandbox.readOnly[{at}]"),
                    format!("{folder:?} has to be an absolute path, or one under ~/"),
                );
            }
        }
        if let Some(bundle) = &sandbox.ca_bundle {
            self.check("sandbox.caBundle", ca_bundle(bundle));
        }
        let limits = &sandbox.egress_limits;
        if limits.bytes().is_none() {
            self.add(
                "sandbox.egressLimits.bytesDaily",
                "has to be a number of bytes such as 5Gi or 512Mi",
            );
        }
        if limits.longest().is_none_or(|time| time.is_zero()) {
            self.add(
                "sandbox.egressLimits.time",
                "has to be a duration such as 1h or 30m",
            );
        }
        if sandbox.output_bytes.is_some_and(|bytes| bytes < 4096) {
            self.add("sandbox.outputBytes", "has to be 4096 or more");
        }
    }
}

/// An `https` address with a host and a path, without a user name. `http` is for
/// private destinations of the installation; whether it is one, the harness knows.
fn repo_url(url: &str) -> Result<(), String> {
    if let Some(https) = https_form(url) {
        return Err(format!(
            "{url:?} would need a key in the sandbox; write {https:?}, which the harness \
             fetches with its own credential"
        ));
    }
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    let blank = url.chars().any(|c| c.is_whitespace() || c.is_control());
    match rest.and_then(|rest| rest.split_once('/')) {
        Some((host, path))
            if !blank && !host.is_empty() && !host.contains('@') && !path.is_empty() =>
        {
            Ok(())
        }
        _ => Err(format!(
            "{url:?} has to be an https address without a user name, such as \
             https://example.org/team/project.git"
        )),
    }
}

/// The `https` address of a repository that is named by `ssh`: `ssh://git@host/path`
/// or `git@host:path`. `None` where it is not.
pub fn https_form(url: &str) -> Option<String> {
    let (host, path) = match url
        .strip_prefix("ssh://")
        .or_else(|| url.strip_prefix("git+ssh://"))
    {
        Some(rest) => rest.split_once('/')?,
        None => {
            let (host, path) = url.split_once(':')?;
            (!host.contains('/') && !path.starts_with("//")).then_some((host, path))?
        }
    };
    let host = host.rsplit('@').next()?;
    let host = host.split(':').next()?;
    let path = path.trim_start_matches('/');
    let plain = |text: &str| !text.is_empty() && !text.contains(char::is_whitespace);
    (plain(host) && plain(path)).then(|| format!("https://{host}/{path}"))
}

/// An `http` or `https` address.
fn endpoint_url(url: &str) -> Result<(), String> {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    let blank = url.chars().any(|c| c.is_whitespace() || c.is_control());
    match rest {
        Some(rest) if !blank && !rest.is_empty() && !rest.starts_with('/') => Ok(()),
        _ => Err(format!(
            "{url:?} has to be an http or https address, such as http://localhost:8000/v1"
        )),
    }
}

/// Certificates in PEM, and nothing secret.
fn ca_bundle(text: &str) -> Result<(), String> {
    const MOST: usize = 256 << 10;
    if text.len() > MOST {
        return Err(format!("has more than {} KiB", MOST >> 10));
    }
    if text.contains("PRIVATE KEY-----") {
        return Err("holds a private key, which commands would see; only certificates".into());
    }
    let begun = text.matches("-----BEGIN CERTIFICATE-----").count();
    let ended = text.matches("-----END CERTIFICATE-----").count();
    match begun > 0 && begun == ended {
        true => Ok(()),
        false => Err("has to be certificates in PEM, from -----BEGIN CERTIFICATE----- on".into()),
    }
}

/// A name that a shell can set.
fn env_name(name: &str) -> Result<(), String> {
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if begins && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        Ok(())
    } else {
        Err(format!("{name:?} is no name of an environment variable"))
    }
}

/// One of Discord's ids: a decimal number of 64 bits.
fn discord_id(id: &str) -> Result<(), String> {
    if id.bytes().all(|b| b.is_ascii_digit()) && id.parse::<u64>().is_ok_and(|id| id > 0) {
        Ok(())
    } else {
        Err(format!(
            "{id:?} is no Discord id, which is a number of up to 20 digits in quotes"
        ))
    }
}

/// Fit for the names of tools: no `__`, which separates their parts.
fn is_server_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.len() <= 24
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && !name.contains("--")
        && name.chars().all(fits)
}

/// A token of RFC 9110.
fn is_header_name(name: &str) -> bool {
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !name.is_empty() && name.len() <= 128 && name.chars().all(token)
}

/// What `git check-ref-format` takes, and nothing that reads as an option.
fn is_reference(name: &str) -> bool {
    let odd = |c: char| c.is_control() || " ~^:?*[\\".contains(c);
    !(name.is_empty()
        || name.starts_with(['-', '/'])
        || name.ends_with(['/', '.'])
        || name.ends_with(".lock")
        || name.contains("..")
        || name.contains("//")
        || name.contains("@{")
        || name.contains(odd))
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
