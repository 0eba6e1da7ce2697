//! The stand-in as a program: prints its addresses as one JSON line and serves
//! until its standard input ends.

use std::error::Error;

use mooring_discord_standin::StandIn;
use tokio::io::AsyncReadExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port = match std::env::args().nth(1) {
        Some(port) => port
            .parse()
            .map_err(|_| format!("`{port}` is no port number"))?,
        None => 0,
    };
    let standin = StandIn::start(port).await?;
    let addresses = serde_json::json!({"rest": standin.rest(), "gateway": standin.gateway()});
    println!("{addresses}");
    // Whoever started it holds the other end: it never outlives them.
    let mut rest = Vec::new();
    tokio::io::stdin().read_to_end(&mut rest).await?;
    Ok(())
}
