//! Check of the kernel's support for the base rules.

use vipline_nftables::{
    Client, Error, Name, Object, RejectedOperation, Subject, Table, TableFlags, TableId,
    Transaction,
};
use vipline_reconcile::Edit;

use crate::backend::nftables::Planner;
use crate::{Context, Mode, Planner as _};

/// A table flag that the kernel always rejects.
const IMPOSSIBLE: TableFlags = TableFlags::from_bits_retain(1 << 31);

/// Checks that the kernel supports all rules that do not depend on Services.
///
/// The transaction contains an invalid table. So the kernel checks all operations and
/// applies none.
pub(in crate::backend) fn probe(cx: &Context) -> Result<(), crate::Error> {
    let response = Client::open().and_then(|mut client| {
        let edits = edits(&mut client, Planner::base(cx))?;
        client.commit(&Transaction::from_edits(&edits))
    });
    let (rejected, more) = match response {
        Err(Error::Rejected { rejected, more }) => (rejected, more),
        Err(error) => return Err(error.into()),
        Ok(()) => return Err(crate::Error::ProbeAccepted),
    };
    let operations = rejected
        .iter()
        .filter(|operation| !is_deliberate(operation));
    let mut reasons: Vec<_> = operations.map(ToString::to_string).collect();
    if more > 0 {
        reasons.push(format!("and {more} more"));
    }
    if reasons.is_empty() {
        return Ok(());
    }
    Err(crate::Error::Unsupported {
        mode: Mode::Nftables,
        family: cx.family,
        reasons: reasons.join("; "),
    })
}

/// Returns edits that replace the existing table by `objects` and add an
/// invalid table.
fn edits(client: &mut Client, objects: Vec<Object>) -> Result<Vec<Edit<Object>>, Error> {
    let mut edits = Vec::new();
    for object in objects {
        if let Object::Table(table) = &object {
            let id = table.id.clone();
            if client.table(&id)?.is_some() {
                edits.push(Edit::Remove(Table::new(id.clone()).into()));
            }
            let name = Name::new("kube-proxy-probe").expect("it is a name");
            let mut impossible = Table::new(TableId::new(id.family, name));
            impossible.flags = IMPOSSIBLE;
            edits.push(Edit::Add(impossible.into()));
        }
        edits.push(Edit::Add(object));
    }
    Ok(edits)
}

fn is_deliberate(refused: &RejectedOperation) -> bool {
    let Subject::Object(object) = &refused.request.subject else {
        return false;
    };
    matches!(&**object, Object::Table(table) if table.flags == IMPOSSIBLE)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use testkit::netns::Netns;
    use vipline_nftables::Family as Nft;
    use vipline_service_model::{Family, NodeView};

    use super::*;
    use crate::Config;

    fn context() -> Context {
        let mut node = NodeView::default();
        node.addresses = vec![IpAddr::from([192, 0, 2, 1])];
        Context::new(&Config::default(), &node, [], Family::V4)
    }

    #[test]
    fn a_probe_of_a_capable_kernel_changes_nothing() {
        let netns = Netns::new().unwrap();
        let (before, response, after) = netns.run(|| {
            let mut client = Client::open().unwrap();
            let before = client.generation().unwrap();
            let response = probe(&context());
            (before, response, client.generation().unwrap())
        });
        response.unwrap();
        assert_eq!(before, after, "nothing was committed");
    }

    #[test]
    fn existing_rules_do_not_affect_the_probe_and_stay() {
        let netns = Netns::new().unwrap();
        netns.run(|| {
            let mut client = Client::open().unwrap();
            let base = Planner::base(&context());
            let edits: Vec<_> = base.iter().cloned().map(Edit::Add).collect();
            client.commit(&Transaction::from_edits(&edits)).unwrap();
            let id = TableId::new(Nft::Ip, Name::new("kube-proxy").unwrap());
            let before = client.dump(std::slice::from_ref(&id)).unwrap();
            probe(&context()).unwrap();
            let after = client.dump(std::slice::from_ref(&id)).unwrap();
            assert!(before.into_objects().eq(after.into_objects()));
        });
    }

    #[test]
    fn rejected_operations_are_named() {
        let netns = Netns::new().unwrap();
        let error = netns.run(|| {
            let mut cx = context();
            cx.local = Some(vipline_service_model::LocalTraffic::Interface(
                "a-name-too-long-for-any-interface".into(),
            ));
            probe(&cx).unwrap_err().to_string()
        });
        let start = "the kernel does not support mode nftables for IPv4: add rule ip kube-proxy ";
        assert!(error.starts_with(start), "{error}");
    }
}
