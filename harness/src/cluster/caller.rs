//! Who calls, by their certificate, and which methods they may call.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use axum::http::{Request, Response};
use mooring_wire::{
    code::{Code, status},
    tls::{Identity, Role, peer},
};
use tonic::{
    body::Body,
    transport::server::{TcpConnectInfo, TlsConnectInfo},
};

/// Who calls a harness in a cluster; it stands in the request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The bot, which names the Discord user that acts.
    Bot,
    /// The operator, which looks.
    Operator,
    /// Somebody at a terminal. All terminals of a workspace share one certificate,
    /// so nobody knows who: they may talk and watch, not decide.
    Terminal,
}

impl Caller {
    /// Whether it may call a method of the harness's contract.
    pub fn may_call(self, method: &str) -> bool {
        let methods: &[&str] = match self {
            Caller::Bot => &[
                "Submit",
                "Watch",
                "View",
                "Conversations",
                "Entries",
                "Approvals",
                "Decide",
                "Grants",
                "RevokeGrant",
                "Abort",
                "Withdraw",
                "Reset",
                "Compact",
                "Model",
                "Explain",
                "Role",
                "Fork",
                "Diff",
                "Answer",
                "TaskGraph",
                "Delete",
                "Export",
                "Usage",
                "Status",
                "Threads",
                "Advance",
                "Outbox",
                "Ack",
                "Resume",
                "Upload",
            ],
            Caller::Operator => &["Status", "Usage", "Conversations", "Approvals"],
            Caller::Terminal => &[
                "Submit",
                "Watch",
                "View",
                "Conversations",
                "Entries",
                "Approvals",
                "Grants",
                "Abort",
                "Withdraw",
                // Of what was asked for through a terminal; others' questions need a role
                // that no terminal has.
                "Answer",
                "Fork",
                "Diff",
                "Explain",
                "Egress",
                "TaskGraph",
                "Usage",
                "Status",
            ],
        };
        methods.contains(&method)
    }

    fn word(self) -> &'static str {
        match self {
            Caller::Bot => "the bot",
            Caller::Operator => "the operator",
            Caller::Terminal => "a terminal",
        }
    }
}

/// Whom a harness listens to.
#[derive(Clone, Debug)]
pub struct Callers {
    known: Vec<Identity>,
}

impl Callers {
    /// The callers of a workspace, in an installation.
    pub fn new(workspace: &str, namespace: &str, installation: &str) -> Callers {
        let installed = |role| Identity {
            role,
            workspace: None,
            namespace: installation.to_owned(),
        };
        Callers {
            known: vec![
                installed(Role::Bot),
                installed(Role::Operator),
                Identity {
                    role: Role::Terminal,
                    workspace: Some(workspace.to_owned()),
                    namespace: namespace.to_owned(),
                },
            ],
        }
    }

    /// Their names in certificates.
    pub fn names(&self) -> Vec<String> {
        self.known.iter().map(Identity::to_string).collect()
    }

    fn of<B>(&self, request: &Request<B>) -> Option<Caller> {
        let info = request
            .extensions()
            .get::<TlsConnectInfo<TcpConnectInfo>>()?;
        let certificates = info.peer_certs()?;
        match peer(certificates.first()?, &self.known)?.role {
            Role::Bot => Some(Caller::Bot),
            Role::Operator => Some(Caller::Operator),
            Role::Terminal => Some(Caller::Terminal),
            Role::Harness | Role::Sandbox => None,
        }
    }
}

/// Lets each caller call its own methods only.
#[derive(Clone, Debug)]
pub struct CallerLayer(pub Callers);

impl<S> tower::Layer<S> for CallerLayer {
    type Service = Checked<S>;
    fn layer(&self, inner: S) -> Checked<S> {
        Checked {
            inner,
            callers: self.0.clone(),
        }
    }
}

/// What [`CallerLayer`] makes.
#[derive(Clone, Debug)]
pub struct Checked<S> {
    inner: S,
    callers: Callers,
}

impl<S, B> tower::Service<Request<B>> for Checked<S>
where
    S: tower::Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let method = request.uri().path().rsplit('/').next().unwrap_or_default();
        let refused = match self.callers.of(&request) {
            Some(caller) if caller.may_call(method) => {
                request.extensions_mut().insert(caller);
                return Box::pin(self.inner.call(request));
            }
            Some(caller) => format!("{} may not call {method}", caller.word()),
            None => "your certificate names no caller of this harness".to_owned(),
        };
        let answer = status(Code::Forbidden, refused).into_http();
        Box::pin(std::future::ready(Ok(answer)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_caller_has_its_own_methods() {
        for (method, bot, operator, terminal) in [
            ("Submit", true, false, true),
            ("Status", true, true, true),
            ("Decide", true, false, false),
            ("RevokeGrant", true, false, false),
            ("Outbox", true, false, false),
            ("Ack", true, false, false),
            ("Advance", true, false, false),
            ("Abort", true, false, true),
            ("Answer", true, false, true),
            ("Explain", true, false, true),
            ("Reset", true, false, false),
            ("Compact", true, false, false),
            ("Model", true, false, false),
            ("Configure", false, false, false),
            ("Stop", false, false, false),
            ("Audit", false, false, false),
            ("Egress", false, false, true),
            ("NoSuchMethod", false, false, false),
        ] {
            assert_eq!(Caller::Bot.may_call(method), bot, "bot {method}");
            assert_eq!(
                Caller::Operator.may_call(method),
                operator,
                "operator {method}"
            );
            assert_eq!(
                Caller::Terminal.may_call(method),
                terminal,
                "terminal {method}"
            );
        }
    }

    #[test]
    fn callers_are_named_by_workspace_or_installation() {
        assert_eq!(
            Callers::new("platform", "agents", "mooring-system").names(),
            [
                "bot.mooring-system.mooring.internal",
                "operator.mooring-system.mooring.internal",
                "terminal.platform.agents.mooring.internal",
            ]
        );
    }
}
