//! All servers of the Workspace, and the tools that they offer to a conversation.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock},
    time::Duration,
};

use mooring_crds::McpServer;
use mooring_durable::{
    Engine,
    document::{DocumentChange, DocumentKind, ForkPolicy, History, Op, Scope},
    id::ConversationId,
    tool::Tool,
};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    search::{self, ToolSearch},
    server::{Means, Offer, Server, Standing},
    tool::ServerTool,
};

/// More tools than these are not listed to the model: it looks for them.
pub const LISTED: usize = 30;
/// How long a request waits for servers that were not tried yet.
const PATIENCE: Duration = Duration::from_secs(5);
/// Conversations whose loaded tools are kept in memory.
const REMEMBERED: usize = 1_000;

/// What servers offered when they were last reached: `{server: {"spec", "offers"}}`.
static OFFERS: DocumentKind = DocumentKind::new(
    "mooring.mcp",
    1,
    History::Latest,
    ForkPolicy::Initial,
    |_, value| Ok(value),
);

/// All servers of the Workspace.
pub struct Servers {
    means: Means,
    all: RwLock<BTreeMap<String, Arc<Server>>>,
    tools: RwLock<Arc<Vec<Arc<ServerTool>>>>,
    /// The tools that conversations have looked for, by name.
    loaded: Mutex<HashMap<ConversationId, BTreeSet<String>>>,
    engine: OnceLock<Engine>,
    changes: watch::Sender<u64>,
}

/// How one server stands, for people.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its name.
    pub name: String,
    /// Where it is: its address, or its command.
    pub place: String,
    /// How it stands.
    pub standing: Standing,
    /// How many tools it offers.
    pub tools: usize,
}

impl Servers {
    /// None yet.
    pub fn new(means: Means) -> Arc<Servers> {
        Arc::new(Servers {
            means,
            all: RwLock::default(),
            tools: RwLock::default(),
            loaded: Mutex::default(),
            engine: OnceLock::new(),
            changes: watch::Sender::new(0),
        })
    }

    /// The database is open: what servers offered before is offered again, so that a call
    /// that waits finds its tool.
    pub async fn opened(self: &Arc<Self>, engine: &Engine) {
        let _ = self.engine.set(engine.clone());
        let stored = match engine.document(Scope::Session, &OFFERS, None).await {
            Ok(stored) => stored.map(|document| document.value).unwrap_or_default(),
            Err(error) => {
                tracing::warn!(%error, "what MCP servers offered cannot be read");
                Value::Null
            }
        };
        let servers = self.means.source.current();
        for spec in &servers.spec.mcp {
            self.add(spec, stored_offers(&stored, spec));
        }
        self.gather();
    }

    /// Begins to reach them, and follows changes of the Workspace.
    pub fn start(self: &Arc<Self>) {
        for server in self.list() {
            self.run(server);
        }
        tokio::spawn(self.clone().follow());
        tokio::spawn(self.clone().keep());
    }

    fn list(&self) -> Vec<Arc<Server>> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.values().cloned().collect()
    }

    fn add(&self, spec: &McpServer, offers: Vec<Offer>) -> Arc<Server> {
        let server = Server::new(spec.clone(), offers, self.means.limits);
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = all.insert(spec.name.clone(), server.clone()) {
            old.stop.cancel();
        }
        server
    }

    fn run(self: &Arc<Self>, server: Arc<Server>) {
        let this = self.clone();
        let changed = move || this.gather();
        tokio::spawn(server.run(self.means.clone(), changed));
    }

    /// Puts the list of tools together again.
    fn gather(&self) {
        let mut tools = Vec::new();
        for server in self.list() {
            for offer in server.offers().iter() {
                tools.push(Arc::new(ServerTool {
                    server: server.clone(),
                    offer: offer.clone(),
                    link: self.means.link.clone(),
                }));
            }
        }
        *self.tools.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tools);
        self.changes.send_modify(|count| *count += 1);
    }

    async fn follow(self: Arc<Self>) {
        let mut workspaces = self.means.source.changes();
        while workspaces.changed().await.is_ok() {
            let wanted = workspaces.borrow_and_update().clone();
            let servers: HashMap<_, _> = self
                .list()
                .into_iter()
                .map(|server| (server.spec.name.clone(), server))
                .collect();
            for (name, server) in &servers {
                if !wanted.spec.mcp.iter().any(|spec| spec.name == *name) {
                    server.stop.cancel();
                    let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
                    all.remove(name);
                }
            }
            for spec in &wanted.spec.mcp {
                let known = servers.get(&spec.name);
                if known.is_none_or(|server| server.spec != *spec) {
                    let offers = known
                        .filter(|old| is_same(&old.spec, spec))
                        .map_or_else(Vec::new, |old| old.offers().to_vec());
                    let server = self.add(spec, offers);
                    self.run(server);
                }
            }
            self.gather();
        }
    }

    /// Keeps what they offer in the database.
    async fn keep(self: Arc<Self>) {
        let mut changes = self.changes.subscribe();
        let mut kept = Value::Null;
        while changes.changed().await.is_ok() {
            changes.borrow_and_update();
            let mut offers = serde_json::Map::new();
            for server in self.list() {
                let value = json!({ "spec": server.spec, "offers": *server.offers() });
                offers.insert(server.spec.name.clone(), value);
            }
            let value = Value::Object(offers);
            let (Some(engine), true) = (self.engine.get(), value != kept) else {
                continue;
            };
            let change = DocumentChange {
                scope: Scope::Session,
                kind: &OFFERS,
                op: Op::Set(value.clone()),
            };
            match engine.change_documents(&[change], Vec::new()).await {
                Ok(_) => kept = value,
                Err(error) => tracing::warn!(%error, "what MCP servers offer is not kept"),
            }
        }
    }

    /// Values of headers may have changed, or a server may be back.
    pub fn wake(&self) {
        for server in self.list() {
            server.wake();
        }
    }

    /// Ends all connections, and what runs in the sandbox for them.
    pub async fn stop(&self) {
        let servers = self.list();
        let runs = servers.iter().any(|server| server.spec.url.is_none());
        servers.iter().for_each(|server| server.stop.cancel());
        if runs {
            // Their executions are ended and forgotten in the background.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// How they stand.
    pub fn reports(&self) -> Vec<Report> {
        self.list()
            .iter()
            .map(|server| Report {
                name: server.spec.name.clone(),
                place: match &server.spec.url {
                    Some(url) => url.clone(),
                    None => server.spec.command.join(" "),
                },
                standing: server.standing(),
                tools: server.offers().len(),
            })
            .collect()
    }

    /// Names of variables whose values are sent as headers and are not here.
    pub fn missing_keys(&self) -> Vec<String> {
        let names = self.list().into_iter().flat_map(|server| {
            let url = server.spec.url.clone();
            let variables: Vec<String> = server.spec.headers_env.values().cloned().collect();
            variables
                .into_iter()
                .map(move |variable| crate::model::key_name(&variable, url.as_deref()))
        });
        names.filter(|name| !self.means.keys.has(name)).collect()
    }

    /// All tools that the policy shows.
    pub(super) fn visible_now(&self) -> Vec<Arc<ServerTool>> {
        let workspace = self.means.source.current();
        self.visible(|name| workspace.rules.tool_visible(name))
    }

    /// All tools that `visible` lets through.
    pub(super) fn visible(&self, visible: impl Fn(&str) -> bool) -> Vec<Arc<ServerTool>> {
        let tools = self
            .tools
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        tools
            .iter()
            .filter(|tool| visible(&tool.offer.name))
            .cloned()
            .collect()
    }

    /// The tools of a conversation: all of them where they are few, else those that it has
    /// looked for, and the tool to look with.
    pub fn tools(
        self: &Arc<Self>,
        conversation: ConversationId,
        visible: impl Fn(&str) -> bool,
    ) -> Vec<Arc<dyn Tool>> {
        let all = self.visible(&visible);
        let as_tool = |tool: Arc<ServerTool>| tool as Arc<dyn Tool>;
        if all.len() <= LISTED || !visible(search::NAME) {
            return all.into_iter().map(as_tool).collect();
        }
        let loaded = self.loaded();
        let mut tools: Vec<Arc<dyn Tool>> = vec![Arc::new(ToolSearch(self.clone()))];
        match loaded.get(&conversation) {
            Some(names) => tools.extend(
                all.into_iter()
                    .filter(|tool| names.contains(&tool.offer.name))
                    .map(as_tool),
            ),
            // Not asked yet since the start: a call that was made before finds its tool.
            None => tools.extend(all.into_iter().map(as_tool)),
        }
        tools
    }

    fn loaded(&self) -> std::sync::MutexGuard<'_, HashMap<ConversationId, BTreeSet<String>>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the model is told of servers, before its tools are put together. The tools
    /// that the conversation has looked for are known afterwards.
    pub async fn section(
        &self,
        conversation: ConversationId,
        visible: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let servers = self.list();
        if servers.is_empty() {
            return None;
        }
        let tried = async {
            for server in &servers {
                server.tried().await;
            }
        };
        let _ = tokio::time::timeout(PATIENCE, tried).await;
        if let Some(engine) = self.engine.get() {
            match search::loaded(engine, conversation).await {
                Ok(names) => {
                    let mut loaded = self.loaded();
                    if loaded.len() >= REMEMBERED
                        && let Some(oldest) = loaded.keys().min().copied()
                    {
                        loaded.remove(&oldest);
                    }
                    loaded.insert(conversation, names);
                }
                Err(error) => {
                    tracing::warn!(%error, "the tools of a conversation stay as they were")
                }
            }
        }
        let mut lines = Vec::new();
        let tools = self.visible(&visible);
        if tools.len() > LISTED && visible(search::NAME) {
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for tool in &tools {
                *counts.entry(&tool.server.spec.name).or_default() += 1;
            }
            let counts: Vec<String> = counts
                .iter()
                .map(|(server, count)| format!("{server} ({count})"))
                .collect();
            lines.push(format!(
                "There are more tools than are listed, of these servers: {}. {} finds and loads them.",
                counts.join(", "),
                search::NAME
            ));
        }
        for server in &servers {
            if let Standing::Down { since, .. } = server.standing() {
                let since = jiff::Timestamp::from_millisecond(since.0).unwrap_or_default();
                lines.push(format!(
                    "The server {} cannot be reached since {}: calls of its tools wait until it is back.",
                    server.spec.name,
                    since.strftime("%H:%M UTC")
                ));
            }
        }
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

/// Whether it is still the same server, however it is spoken to.
fn is_same(old: &McpServer, new: &McpServer) -> bool {
    old.url == new.url && old.command == new.command
}

/// What a server offered, where it is still the same one.
fn stored_offers(stored: &Value, spec: &McpServer) -> Vec<Offer> {
    let known = &stored[&spec.name];
    let same = serde_json::from_value::<McpServer>(known["spec"].clone())
        .is_ok_and(|old| is_same(&old, spec));
    match same {
        true => serde_json::from_value(known["offers"].clone()).unwrap_or_default(),
        false => Vec::new(),
    }
}
