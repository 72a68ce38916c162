//! Property tests: encoding and decoding, printing and parsing, no panics on
//! arbitrary input.
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "laws/tables.rs"]
mod tables;

use std::net::SocketAddr;

use proptest::collection::vec;
use proptest::prelude::*;
use vipline_ipvs::wire::Reply;
use vipline_ipvs::{Command, CommandLine, Commands, Family, Object, RealServer, ServiceKey, Table};
use vipline_reconcile::{Edit, diff};

use tables::{real, server, service, table};

/// Words of a command line, most of which fit together.
fn words() -> impl Strategy<Value = Vec<&'static str>> {
    const FIRST: &[&str] = &[
        "-A",
        "-E",
        "-D",
        "-a",
        "-ae",
        "-d",
        "-C",
        "-L",
        "-Ln",
        "-S",
        "-Z",
        "--set",
        "--start-daemon",
        "--stop-daemon=backup",
    ];
    const WORDS: &[&str] = &[
        "-t",
        "10.0.0.1:http",
        "-u10.1:53",
        "--tcp-service=[fd00::1]:80",
        "-f7",
        "-6",
        "-r",
        "10.1.0.1",
        "fd00::2",
        "-m",
        "-i",
        "-w5",
        "-x",
        "9",
        "-p",
        "-p300",
        "-M",
        "24",
        "-s",
        "sh",
        "-bsh-port,flag-3",
        "-o",
        "--pe=sip",
        "--tun-type",
        "gue",
        "--tun-port=7",
        "--tun-csum",
        "master",
        "--syncid",
        "5",
        "--mcast-group=ff02::1",
        "--mcast-interface=",
        "-c",
        "-n",
        "--stats",
        "--exact",
        "--timeout",
        "1",
        "2",
    ];
    let first = prop::sample::select(FIRST);
    let rest = vec(prop::sample::select(WORDS), 0..8);
    (first, rest).prop_map(|(first, mut rest)| {
        rest.insert(0, first);
        rest
    })
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        server().prop_map(Command::Add),
        server().prop_map(Command::Edit),
        service().prop_map(Command::Remove),
        (service(), real()).prop_map(|(service, real)| Command::AddDestination(service, real)),
        (service(), real()).prop_map(|(service, real)| Command::EditDestination(service, real)),
        (service(), real()).prop_map(|(service, real)| {
            Command::RemoveDestination(service, SocketAddr::new(real.address, real.port))
        }),
    ]
}

/// Applies a command to a table like the kernel. Returns `false` if the kernel would
/// reject it.
fn execute(table: &mut Table, command: &Command) -> bool {
    let has = |table: &Table, service: &ServiceKey, real: &RealServer| {
        let mut reals = table.destinations(service);
        reals.any(|one| one.endpoint() == real.endpoint())
    };
    match command {
        Command::Add(server) => {
            let is_new = table.server(&server.service).is_none();
            table.insert(*server);
            is_new
        }
        Command::Edit(server) => {
            let is_there = table.server(&server.service).is_some();
            table.insert(*server);
            is_there
        }
        Command::Remove(service) => table.remove(service),
        Command::AddDestination(service, real) => {
            !has(table, service, real) && table.insert_destination(service, *real)
        }
        Command::EditDestination(service, real) => {
            has(table, service, real) && table.insert_destination(service, *real)
        }
        Command::RemoveDestination(service, endpoint) => {
            table.remove_destination(service, endpoint)
        }
    }
}

proptest! {
    #[test]
    fn commands_decode_from_their_bytes_and_parse_from_their_text(command in command()) {
        let mut out = Vec::new();
        command.encode(&mut out);
        prop_assert_eq!(Command::decode(&out).unwrap(), command);
        prop_assert_eq!(command.to_string().parse::<Command>().unwrap(), command);
    }

    #[test]
    fn tables_parse_from_their_text_and_collect_from_their_objects(table in table()) {
        prop_assert_eq!(&table.to_string().parse::<Table>().unwrap(), &table);
        prop_assert_eq!(&table.objects().collect::<Table>(), &table);
        let objects: Vec<Object> = table.objects().collect();
        prop_assert!(diff(table.objects(), &objects).is_empty());
    }

    #[test]
    fn commands_of_a_diff_are_all_accepted_and_produce_the_desired_table(
        (from, to) in (table(), table()),
    ) {
        let wanted: Vec<Object> = to.objects().collect();
        let commands = Commands::from_edits(&diff(from.objects(), &wanted));
        let mut state = from;
        for command in commands.as_slice() {
            prop_assert!(execute(&mut state, command), "{command}");
        }
        prop_assert_eq!(state, to);
    }

    #[test]
    fn edits_in_any_order_become_accepted_commands(
        edits in table().prop_flat_map(|table| {
            let edits: Vec<_> = table.objects().map(Edit::Add).collect();
            Just(edits).prop_shuffle()
        }),
    ) {
        let mut state = Table::default();
        for command in Commands::from_edits(&edits).as_slice() {
            prop_assert!(execute(&mut state, command), "{command}");
        }
        let removed = edits.into_iter().map(|edit| Edit::Remove(*edit.object()));
        let removed: Vec<_> = removed.collect();
        for command in Commands::from_edits(&removed).as_slice() {
            prop_assert!(execute(&mut state, command), "{command}");
        }
        prop_assert_eq!(state, Table::default());
    }

    #[test]
    fn unknown_attributes_are_skipped(command in command(), kind in 100..200_u16) {
        let mut out = Vec::new();
        command.encode(&mut out);
        vipline_netlink::attr::put_u32(&mut out, kind, 7);
        prop_assert_eq!(Command::decode(&out).unwrap(), command);
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(command in 0..20_u8, mut payload in vec(any::<u8>(), 0..200)) {
        payload.splice(0..0, [command, 1, 0, 0]);
        let _ = Command::decode(&payload);
        let _ = Reply::decode(Family::V6, &payload);
    }

    #[test]
    fn no_cut_or_changed_command_makes_a_decoder_panic(
        command in command(),
        at in any::<prop::sample::Index>(),
        with in any::<u8>(),
    ) {
        let mut out = Vec::new();
        command.encode(&mut out);
        let at = at.index(out.len());
        let _ = Command::decode(&out[..at]);
        out[at] = with;
        let _ = Reply::decode(Family::V4, &out);
        if let Ok(command) = Command::decode(&out) {
            let _ = command.to_string();
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[-AEDaedtufrswpMob 0-9.:\\[\\]\n]{0,80}") {
        let _ = text.parse::<Commands>();
        let _ = text.parse::<Table>();
    }

    #[test]
    fn accepted_command_lines_survive_printing_and_parsing(words in words()) {
        let text = words.join(" ");
        if let Ok(line) = text.parse::<CommandLine>() {
            prop_assert_eq!(line.to_string().parse(), Ok(line), "{}", text);
        }
    }
}
