//! Names as text, in wire format, and their relations.

use std::collections::HashSet;

use super::*;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

#[test]
fn names_compare_and_hash_without_case_and_display_with_case() {
    let mixed = name("Web.DEFAULT.svc.cluster.local");
    assert_eq!(mixed, name("web.default.svc.cluster.local."));
    assert_eq!(mixed.to_string(), "Web.DEFAULT.svc.cluster.local.");
    let names = HashSet::from([mixed, name("web.default.SVC.cluster.local")]);
    assert_eq!(names.len(), 1);
    assert_ne!(name("a.b"), name("a.b.c"));
    assert_ne!(name("a.b"), name("ab"));
}

#[test]
fn text_is_parsed_within_the_limits_of_rfc_1035() {
    let label = "a".repeat(63);
    let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
    assert_eq!(name(&longest).as_wire().len(), MAX_NAME);
    let cases = [
        (".", Ok(".")),
        ("a", Ok("a.")),
        (r"a\.b.c", Ok(r"a\.b.c.")),
        (r"a\046b.c", Ok(r"a\.b.c.")),
        (r"\000.\\.\255", Ok(r"\000.\\.\255.")),
        ("é", Ok(r"\195\169.")),
        ("", Err(ParseError::EmptyLabel)),
        ("..", Err(ParseError::EmptyLabel)),
        (".a", Err(ParseError::EmptyLabel)),
        ("a..b", Err(ParseError::EmptyLabel)),
        (r"a\", Err(ParseError::BadEscape)),
        (r"a\25", Err(ParseError::BadEscape)),
        (r"a\256", Err(ParseError::BadEscape)),
    ];
    for (text, expected) in cases {
        let parsed = Name::from_str(text).map(|name| name.to_string());
        assert_eq!(parsed, expected.map(str::to_owned), "{text:?}");
    }
    let long_label = Name::from_str(&format!("{label}a.b"));
    assert_eq!(long_label, Err(ParseError::LongLabel));
    let long_name = Name::from_str(&format!("{longest}a"));
    assert_eq!(long_name, Err(ParseError::LongName));
}

#[test]
fn wire_format_is_decoded_and_kept() {
    let wire = b"\x03Web\x05local\x00rest";
    let (decoded, length) = Name::from_wire(wire).unwrap();
    assert_eq!(length, 11);
    assert_eq!(decoded.as_wire(), &wire[..11]);
    assert_eq!(decoded.to_string(), "Web.local.");
    assert_eq!(Name::from_wire(&[0]), Ok((Name::root(), 1)));
    for cut in 0..11 {
        assert_eq!(Name::from_wire(&wire[..cut]), Err(ParseError::Truncated));
    }
    assert_eq!(
        Name::from_wire(b"\x01a\xc0\x0c"),
        Err(ParseError::BadLabelType)
    );
    let long = [b"\x3f".as_slice(), &[b'a'; 63]].concat().repeat(4);
    assert_eq!(Name::from_wire(&long), Err(ParseError::LongName));
}

#[test]
fn a_name_is_within_itself_and_its_ancestors() {
    let web = name("web.Default.cluster.local");
    for ancestor in ["WEB.default.cluster.local", "cluster.LOCAL", "local", "."] {
        assert!(web.is_within(&name(ancestor)), "{ancestor}");
    }
    for other in [
        "eb.default.cluster.local",
        "a.web.default.cluster.local",
        "ocal",
    ] {
        assert!(!web.is_within(&name(other)), "{other}");
    }
    // The bytes of a label look like those of the ancestor.
    let hostile = Name::from_labels([b"a\x05local".as_slice()]).unwrap();
    assert!(!hostile.is_within(&name("local")));
}

#[test]
fn names_of_addresses_are_reverse() {
    for reverse in ["1.0.0.10.IN-ADDR.arpa", "in-addr.arpa", "1.ip6.ARPA"] {
        assert!(name(reverse).is_reverse(), "{reverse}");
    }
    for other in [".", "arpa", "home.arpa", "ip6.arpa.example", "aip6.arpa"] {
        assert!(!name(other).is_reverse(), "{other}");
    }
}

#[test]
fn names_are_split_and_joined() {
    let web = name("Web.default.cluster.local");
    assert_eq!(web.skip_labels(2).to_string(), "cluster.local.");
    assert_eq!(web.skip_labels(9), Name::root());
    let joined = web.skip_labels(2).below(["a", "b"]).unwrap();
    assert_eq!(joined.to_string(), "a.b.cluster.local.");
    let label = "a".repeat(63);
    assert_eq!(joined.below([&*label; 4]), None);
}
