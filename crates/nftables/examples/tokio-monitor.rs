//! Follows the changes of all tables like `nft monitor`, in a program with tokio.
//!
//! Run it as root with `cargo run --features tokio --example tokio-monitor`.
//! The example runs in a new network namespace, in which it also makes the changes.

use std::error::Error;
use std::io::{self, Write};

use nix::sched::{CloneFlags, unshare};
use vipline_nftables::netlink::tokio::{AsyncClient, EventStream};
use vipline_nftables::{Client, Error as NftError, Family, Monitor, Name, Notifications};
use vipline_nftables::{Table, TableId};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    // A network namespace of its own, so that the host stays as it is.
    unshare(CloneFlags::CLONE_NEWNET)?;
    run(&mut io::stdout())
}

/// Runs the example in the network namespace of the calling thread.
pub(crate) fn run(out: &mut impl Write) -> Result<()> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_io().build()?.block_on(async {
        let monitor = Monitor::open_with(Notifications::all().with_events(), &[])?;
        let commits = EventStream::new(monitor)?;
        let client = AsyncClient::new(Client::open()?);
        tokio::try_join!(follow(commits, out), change(client))?;
        Ok(())
    })
}

/// Prints the changes up to the first deletion.
async fn follow(mut commits: EventStream<Monitor>, out: &mut impl Write) -> Result<()> {
    loop {
        match commits.next().await {
            Ok(commit) => {
                for event in &commit.events {
                    writeln!(out, "{event}")?;
                }
                if commit.events.iter().any(|event| event.is_removed) {
                    return Ok(());
                }
            }
            // A program that has a copy of the tables dumps them again.
            Err(NftError::NotificationsLost) => writeln!(out, "changes were lost")?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Adds a table and deletes it. The kernel works meanwhile on another thread.
async fn change(client: AsyncClient<Client>) -> Result<()> {
    let table = Table::new(TableId::new(Family::Inet, Name::new("guard")?));
    let added = table.clone();
    client.call(|client| client.add(added)).await?;
    Ok(client.call(|client| client.delete(table)).await?)
}
