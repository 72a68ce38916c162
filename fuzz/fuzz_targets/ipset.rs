//! Decodes arbitrary messages as a dump of sets, and formats and encodes the objects.
//! Parses arbitrary text as a document of `ipset restore`.

use vipline_ipset::{Command, Commands, DumpDecoder, Object, Sets};
use vipline_netlink::message::Messages;
use vipline_reconcile::{Edit, Keyed};

/// Limit of a message, which the kernel must be able to return in an error.
const LONGEST: usize = 64 << 10;

/// Checks that dumped sets are encoded to messages with the same content.
fn check_sets(sets: Sets) {
    let text = sets.to_string();
    assert_eq!(text.is_empty(), sets.is_empty());
    let objects: Vec<Object> = sets.clone().into_objects().collect();
    assert!(objects.iter().all(|object| object.is_equivalent(object)));
    let edits: Vec<_> = objects.iter().cloned().map(Edit::Add).collect();
    let commands = Commands::from_edits(&edits);
    assert_eq!(commands.len(), objects.len());
    let mut decoded = DumpDecoder::new();
    for request in commands.requests(7).expect("there is no copy") {
        assert!(request.payload.len() < 2 * LONGEST);
        decoded
            .push(&request.payload)
            .expect("an encoded message is valid");
    }
    let decoded = decoded.finish();
    assert_eq!(decoded.len(), sets.len());
    for (again, first) in decoded.iter().zip(sets.iter()) {
        assert_eq!(again.entries, first.entries);
        assert!(again.set.is_equivalent(&first.set));
    }
}

/// Checks that a parsed document survives a round trip.
fn check_text(text: &str) {
    let Ok(commands) = Commands::parse(text, &[]) else {
        return;
    };
    let printed = commands.to_string();
    let again = Commands::parse(&printed, &[]).expect("a printed document is valid");
    assert_eq!(again.to_string(), printed);
    let is_set = |command: &&Command| matches!(command, Command::Create(..));
    assert!(
        commands.as_slice().iter().filter(is_set).count()
            <= commands
                .requests(6)
                .expect("parsed commands have no copy")
                .len()
    );
}

/// Checks one input.
pub(crate) fn run(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        check_text(text);
    }
    let mut decoder = DumpDecoder::new();
    for message in Messages::new(bytes).flatten() {
        let _ = decoder.push(message.payload);
    }
    check_sets(decoder.finish());
}
