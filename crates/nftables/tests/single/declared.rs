//! Declarations of sets (`typeof`), compared with those of `nft`.

use vipline_nftables::Edit;
use vipline_nftables::expr::{
    ExthdrOp, FibFlags, FibResult, MetaKey, OsfTtl, RtKey, SocketKey, XfrmDirection, XfrmKey,
};
use vipline_nftables::expression::{
    Expression, exthdr, fib, fib_saddr_type, ip_daddr, ip_saddr, ipsec, osf_name, symhash,
    tcp_option_maxseg_size,
};

use super::*;
use crate::raw::Raw;

#[test]
fn declared_sets_are_those_of_nft() {
    let spi = ipsec(XfrmDirection::Out, 1, XfrmKey::Spi);
    let reqid = ipsec(XfrmDirection::In, 0, XfrmKey::Reqid);
    let cases: Vec<(&str, Vec<Expression>)> = vec![
        (
            "tcp option maxseg size",
            vec![tcp_option_maxseg_size().untyped()],
        ),
        ("frag id", vec![exthdr(ExthdrOp::Ipv6, 44, 4, 4)]),
        ("rt seg-left", vec![exthdr(ExthdrOp::Ipv6, 43, 3, 1)]),
        (
            "ip option ra value",
            vec![exthdr(ExthdrOp::Ipv4, 148, 2, 2)],
        ),
        (
            "sctp chunk init a-rwnd",
            vec![exthdr(ExthdrOp::Sctp, 1, 8, 4)],
        ),
        ("osf name", vec![osf_name(OsfTtl::True)]),
        ("socket mark", vec![SocketKey::Mark.into()]),
        ("socket transparent", vec![SocketKey::Transparent.into()]),
        ("rt classid", vec![RtKey::Classid.into()]),
        ("ipsec out spnum 1 spi", vec![spi]),
        ("fib saddr type", vec![fib_saddr_type().untyped()]),
        (
            "fib daddr . mark oif",
            vec![fib(FibFlags::DADDR | FibFlags::MARK, FibResult::Oif)],
        ),
        ("symhash mod 7", vec![symhash(7).untyped()]),
        ("meta mark", vec![MetaKey::Mark.into()]),
        (
            "ip saddr . ipsec in reqid",
            vec![ip_saddr().untyped(), reqid],
        ),
        (
            "ip daddr . tcp option maxseg size",
            vec![ip_daddr().untyped(), tcp_option_maxseg_size().untyped()],
        ),
    ];
    for (text, key) in cases {
        let (theirs, mut ours) = (Lab::new(), Lab::new());
        theirs.nft(&format!(
            "table inet filter {{\nset s {{\ntypeof {text}\n}}\n}}"
        ));
        let set = Set::new(table(), name("s"), key.clone());
        let objects: [Object; 2] = [Table::new(table()).into(), set.clone().into()];
        let edits = objects.map(Edit::Add);
        ours.client
            .commit(&Transaction::from_edits(&edits))
            .unwrap();
        let [expected, found] = [&theirs, &ours].map(|lab| {
            let raw = lab.netns.run(|| Raw::open().lines());
            let listing = lab.netns.run(|| nft::succeeds(&["list", "ruleset"], ""));
            (raw, listing)
        });
        assert_eq!(found, expected, "{text}");
        let installed = ours.client.dump(&[table()]).unwrap();
        let (dumped, _) = installed.set(&table(), "s").unwrap();
        let expressions = dumped.key.iter().map(|field| field.expression.clone());
        let expected: Vec<_> = key.into_iter().map(Some).collect();
        assert_eq!(expressions.collect::<Vec<_>>(), expected, "{text}");
        assert!(listing_has(&installed, text), "{installed}");
    }
}

fn listing_has(ruleset: &Ruleset, text: &str) -> bool {
    ruleset.to_string().contains(&format!("typeof {text}\n"))
}
