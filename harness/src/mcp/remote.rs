//! A server that is reached by streamable HTTP, from here.

use std::{sync::Arc, time::Duration};

use mooring_crds::McpServer;
use reqwest::{
    dns::{Addrs, Name, Resolve, Resolving},
    header::{HeaderMap, HeaderName, HeaderValue},
};
use rmcp::transport::streamable_http_client::{
    StreamableHttpClientTransport, StreamableHttpClientTransportConfig,
};

use super::limits::Limits;
use crate::{
    boundary::Outside,
    model::{KeyStore, key_name},
};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(20);
/// Bytes of an error page that are read.
const ERROR_BYTES: usize = 16 << 10;

/// The headers of a server's requests; the error says what is missing and the way out.
pub fn headers(spec: &McpServer, keys: &KeyStore) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let mut put = |header: &str, value: &str| {
        let name = HeaderName::try_from(header);
        let value = HeaderValue::try_from(value);
        let (Ok(name), Ok(mut value)) = (name, value) else {
            return Err(format!("the header {header} or its value cannot be sent"));
        };
        value.set_sensitive(true);
        headers.insert(name, value);
        Ok(())
    };
    for (header, variable) in &spec.headers_env {
        let name = key_name(variable, spec.url.as_deref());
        let Some(value) = keys.get(&name) else {
            return Err(format!(
                "its header {header} is taken from {variable}, which is not here; start `mooring dev` with it"
            ));
        };
        put(header, &value)?;
    }
    let secret = spec.headers_secret_ref.as_ref();
    if let Some(secret) = secret.filter(|_| spec.headers_env.is_empty()) {
        let prefix = format!("{}/", secret.name);
        let names = keys.names();
        let mut own = names.iter().filter_map(|name| name.strip_prefix(&prefix));
        let mut any = false;
        for header in &mut own {
            let value = keys.get(&format!("{prefix}{header}"));
            put(header, value.as_ref().map_or("", |value| value.as_str()))?;
            any = true;
        }
        if !any {
            return Err(format!(
                "its headers are in the Secret {}, which has none yet; under `mooring dev` headersEnv names variables",
                secret.name
            ));
        }
    }
    Ok(headers)
}

/// The way to a server. With `outside`, only to where that leads: its address is looked
/// at now, and at each connection.
pub async fn transport(
    url: &str,
    headers: HeaderMap,
    outside: Option<Outside>,
    limits: Limits,
) -> Result<StreamableHttpClientTransport<reqwest::Client>, String> {
    let mut client = reqwest::Client::builder()
        .connect_timeout(CONNECT)
        .default_headers(headers)
        // A redirect would carry the headers to wherever it points.
        .redirect(reqwest::redirect::Policy::none());
    if let Some(outside) = outside {
        let parsed = reqwest::Url::parse(url).map_err(|error| error.to_string())?;
        let port = parsed.port_or_known_default().unwrap_or(443);
        let host = parsed.host_str().unwrap_or_default();
        // An address in place of a name never comes to the resolver below.
        let reachable = outside.reachable(host, port).await;
        reachable.map_err(|refusal| refusal.to_string())?;
        client = client
            .no_proxy()
            .dns_resolver(Arc::new(Names { outside, port }));
    }
    let client = client
        .build()
        .map_err(|error| format!("no HTTP client can be made: {error}"))?;
    let config = StreamableHttpClientTransportConfig::with_uri(url)
        .max_sse_event_size(limits.message)
        .max_json_response_size(limits.message)
        .max_error_response_size(ERROR_BYTES);
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

/// Finds the addresses of names, where they lie outside.
struct Names {
    outside: Outside,
    port: u16,
}

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let (outside, port) = (self.outside.clone(), self.port);
        Box::pin(async move {
            let addresses = outside.reachable(name.as_str(), port).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn spec(yaml: &str) -> McpServer {
        serde_saphyr::from_str(yaml).unwrap()
    }

    #[test]
    fn headers_come_from_variables_or_from_a_secret_and_what_is_missing_is_named() {
        let keys = KeyStore::new();
        let env = spec(
            "{name: t, url: 'https://t/', headersEnv: {X-Key: TOKEN}, headersSecretRef: {name: s}}",
        );
        let secret = spec("{name: t, url: 'https://t/', headersSecretRef: {name: s}}");
        assert!(headers(&env, &keys).unwrap_err().contains("TOKEN"));
        assert!(headers(&secret, &keys).unwrap_err().contains("Secret s"));
        // A variable that was handed over for another server is not sent here.
        keys.set("TOKEN", "wrong");
        assert!(headers(&env, &keys).is_err());
        keys.set("TOKEN@https://t/", "right");
        keys.set("s/Authorization", "Bearer x");
        keys.set("other/Y", "z");
        let found = headers(&env, &keys).unwrap();
        assert_eq!(
            (found.len(), &found["x-key"]),
            (1, &HeaderValue::from_static("right"))
        );
        let found = headers(&secret, &keys).unwrap();
        assert_eq!(found.len(), 1);
        assert!(found["authorization"].is_sensitive());
        assert!(!format!("{found:?}").contains("Bearer"));
        keys.set("s/Bad", "a\nb");
        assert!(headers(&secret, &keys).unwrap_err().contains("Bad"));
    }

    #[tokio::test]
    async fn in_a_cluster_only_what_lies_outside_is_reached() {
        use crate::boundary::Reach;
        let to = |url: &'static str, reach: Reach| async move {
            let outside = Some(Outside::new(reach));
            let made = transport(url, HeaderMap::new(), outside, Limits::default()).await;
            made.err().unwrap_or_default()
        };
        for (url, part) in [
            ("http://localhost:9/", "not outside"),
            ("http://127.0.0.1:9/", "only names are taken"),
            ("http://[::1]:9/", "only names are taken"),
            ("http://169.254.169.254/", "only names are taken"),
        ] {
            let why = to(url, Reach::default()).await;
            assert!(why.contains(part), "{url}: {why}");
        }
        let private = ["127.0.0.0/8:9", "[::1]/128:9"].map(|text| text.parse());
        let reach = Reach {
            private: private.into_iter().filter_map(Result::ok).collect(),
            ..Reach::default()
        };
        assert_eq!(to("http://localhost:9/", reach).await, "");
    }
}
