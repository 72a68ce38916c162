//! Decodes arbitrary messages as replies and commands of IPVS, and parses arbitrary text
//! as a script of ipvsadm.

use vipline_ipvs::wire::Reply;
use vipline_ipvs::{Command, CommandLine, Commands, Connection, Family, Object, Table};
use vipline_netlink::message::Messages;

/// Checks that a decoded command survives a round trip.
fn check_command(payload: &[u8]) {
    let Ok(command) = Command::decode(payload) else {
        return;
    };
    let _ = command.to_string();
    let mut again = Vec::new();
    command.encode(&mut again);
    assert_eq!(Command::decode(&again), Ok(command));
}

fn check_text(text: &str) {
    if let Ok(commands) = text.parse::<Commands>() {
        assert_eq!(commands.to_string().parse(), Ok(commands));
    }
    if let Ok(line) = text.parse::<CommandLine>() {
        assert_eq!(line.to_string().parse(), Ok(line));
    }
    if let Ok(connection) = text.parse::<Connection>() {
        assert_eq!(connection.to_string().parse(), Ok(connection));
    }
    if let Ok(table) = text.parse::<Table>() {
        assert_eq!(table.to_string().parse(), Ok(table));
    }
}

/// Checks one input.
pub(crate) fn run(input: &[u8]) {
    let mut objects = Vec::new();
    for message in Messages::new(input).flatten() {
        check_command(message.payload);
        for family in [Family::V4, Family::V6] {
            if let Ok(Reply::Server(server, _)) = Reply::decode(family, message.payload) {
                objects.push(Object::VirtualServer(server));
            }
        }
    }
    let table: Table = objects.into_iter().collect();
    assert_eq!(table.objects().collect::<Table>(), table);
    if let Ok(text) = std::str::from_utf8(input) {
        check_text(text);
    }
}
