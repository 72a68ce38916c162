//! Prints conntrack events like `conntrack -E -o extended`, without the time.
//!
//! Run as root: `cargo run --example conntrack-watch -- [PROTOCOL]`,
//! with a number such as 6 for TCP.

use std::error::Error;
use std::io::Write;

use vipline_conntrack::{Event, Events, Filter, Groups, Protocol};

/// Prints the events that have arrived. Does not block.
pub(crate) fn print_events(
    events: &mut Events,
    filter: &Filter,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let mut written = Ok(());
    events.read(|event| {
        let is_selected = match &event {
            Event::New(flow) | Event::Update(flow) | Event::Destroy(flow) => filter.matches(flow),
            // A dump finds what the lost events would have reported.
            Event::Overrun => true,
            _ => false,
        };
        if is_selected && written.is_ok() {
            written = writeln!(out, "{event}");
        }
    })?;
    Ok(written?)
}

#[allow(dead_code, reason = "a test includes this file")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut filter = Filter::new();
    if let Some(number) = std::env::args().nth(1) {
        filter = filter.with_protocol(Protocol(number.parse()?));
    }
    let mut events = Events::open(Groups::NEW | Groups::UPDATE | Groups::DESTROY, &[])?;
    loop {
        wait_readable(&events)?;
        print_events(&mut events, &filter, &mut std::io::stdout())?;
    }
}

/// Waits for events. An event loop would register the descriptor instead.
#[allow(dead_code, reason = "a test includes this file")]
fn wait_readable(events: &Events) -> std::io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    poll(&mut [PollFd::new(events, PollFlags::IN)], None)?;
    Ok(())
}
