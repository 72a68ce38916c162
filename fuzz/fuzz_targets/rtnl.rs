//! Decodes arbitrary messages as replies of rtnetlink.

use vipline_netlink::message::Messages;
use vipline_reconcile::{Edit, diff};
use vipline_rtnl::wire::{IndexedAddress, Reply};
use vipline_rtnl::{Command, Commands, Name, Object, Snapshot};

/// Checks that a decoded address survives a round trip, except attributes that only the
/// kernel sets.
fn check_address(address: &IndexedAddress, name: Name) {
    let command = Command::AddAddress(address.on(name));
    let once = again(&command, address.index);
    let command = Command::AddAddress(once.on(name));
    assert_eq!(again(&command, address.index), once);
    let kept = (once.index, once.net, once.peer, once.scope);
    assert_eq!(
        kept,
        (address.index, address.net, address.peer, address.scope)
    );
}

fn again(command: &Command, index: u32) -> IndexedAddress {
    let mut out = Vec::new();
    command.encode(index, &mut out);
    match Reply::decode(command.ty(), &out) {
        Ok(Reply::Address(address)) => address,
        other => panic!("{other:?}"),
    }
}

/// Checks one input.
pub(crate) fn run(input: &[u8]) {
    let mut all = Snapshot::default();
    let mut name = Name::new("lo").expect("a good name");
    for message in Messages::new(input).flatten() {
        match Reply::decode(message.ty, message.payload) {
            Ok(Reply::Link(link)) => {
                name = link.name;
                all.insert_link(link);
            }
            Ok(Reply::Address(address)) => {
                check_address(&address, name);
                all.insert(address.on(name));
            }
            _ => {}
        }
    }
    let objects: Vec<Object> = all.clone().into_objects().collect();
    assert!(diff(all.clone().into_objects(), &objects).is_empty());
    let edits: Vec<_> = objects.into_iter().map(Edit::Add).collect();
    let commands = Commands::from_edits(&edits);
    assert_eq!(commands.as_slice().len(), edits.len());
    let _ = commands.to_string();
}
