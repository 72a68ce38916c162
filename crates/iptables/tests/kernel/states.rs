//! Restore documents of differences between states.

use std::collections::BTreeMap;
use std::path::Path;

use testkit::iptables::Programs;
use testkit::netns::Netns;
use vipline_iptables::{Client, Family, Object, Restore, TableName, Tables, Variant, program_name};
use vipline_reconcile::diff;

/// Captures whose rules need no other objects.
const CAPTURES: [&str; 3] = ["docker", "firewalld", "flannel"];

const TABLES: [&str; 5] = ["filter", "mangle", "nat", "raw", "security"];

fn capture(name: &str) -> Vec<Object> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures");
    let path = folder.join(format!("{name}-nft-v4.save"));
    let text = std::fs::read_to_string(&path).unwrap();
    Tables::parse(&text).unwrap().objects().unwrap()
}

fn installed(client: &mut Client) -> Vec<Object> {
    let saved = TABLES.map(|table| client.save(TableName::new(table).unwrap()).unwrap());
    let objects = saved
        .iter()
        .map(|text| Tables::parse(text).unwrap().objects().unwrap());
    objects.flatten().collect()
}

/// Returns chains by name, except unchanged built-in chains.
fn chains(objects: Vec<Object>) -> BTreeMap<(String, String), String> {
    let mut chains = BTreeMap::new();
    for object in objects {
        let Object::Chain(chain) = object else {
            panic!("{object:?}")
        };
        let rules: Vec<_> = chain.rules().collect();
        let is_as_made = format!("{:?}", chain.policy) == "Some(Accept)" && rules.is_empty();
        if !is_as_made {
            let key = (chain.table.to_string(), chain.name.to_string());
            chains.insert(key, format!("{:?} {}", chain.policy, rules.join("\n")));
        }
    }
    chains
}

#[test]
fn the_restore_document_of_a_diff_leads_from_one_state_to_another() {
    for variant in [Variant::Nft, Variant::Legacy] {
        let programs = Programs::new().unwrap();
        let [save, restore] = programs
            .variant(&format!("{}-{variant}", program_name(Family::V4)))
            .unwrap();
        for section in [usize::MAX, 3] {
            Netns::new().unwrap().run(|| {
                let mut client = Client::open_at(&save, &restore).unwrap();
                let way = CAPTURES.iter().chain(CAPTURES.iter().rev());
                for name in way {
                    let wanted = capture(name);
                    let edits = diff(installed(&mut client), &wanted);
                    let document = Restore::in_sections(&edits, section);
                    if let Err(error) = client.restore(&document) {
                        panic!("{variant} {name}: {error}\n{document}");
                    }
                    let there = installed(&mut client);
                    assert_eq!(chains(there), chains(wanted), "{variant} {name}");
                }
            });
        }
    }
}
