//! A program outside of the workspace that uses every published crate.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use proxy_core::{Config as ProxyConfig, Event as ProxyEvent};
use vipline_conntrack::{Filter, Protocol as FlowProtocol};
use vipline_evaluate::{Evaluator, Host, Packet};
use vipline_hcn::NetworkType;
use vipline_inet::Family as IpFamily;
use vipline_ipset::Commands as Sets;
use vipline_iptables::Rule;
use vipline_ipvs::Table;
use vipline_kube_source::manifests::Manifests;
use vipline_netlink::Errno;
use vipline_nftables::{Family, Name, Object, Ruleset, Table as NftTable, TableId, Transaction};
use vipline_reconcile::{Edit, diff};
use vipline_rtnl::Name as Link;
use vipline_service_dns::{Options, Question, RecordType, Zone};
use vipline_service_ip::{AddressRange, Allocator, Memory, OwnerRef, Registry};
use vipline_service_model::{Config, Event, Store, api};
use vipline_stale_flows::CleanupReport;

fn main() -> Result<(), Box<dyn Error>> {
    let mut service = api::Service {
        metadata: api::ObjectMeta::named("default", "web"),
        ..api::Service::default()
    };
    let range: AddressRange = "10.96.0.0/16".parse()?;
    let mut registry = Registry::new(Memory::new(Allocator::new(range)));
    let address = registry.allocate(&OwnerRef::service("default", "web"), &mut || 4)?;
    service.spec.cluster_ip = address.to_string().into();
    let mut zone = Zone::new(Options::new("cluster.local".parse()?));
    zone.apply(&Event::ServiceApplied(service.clone()));
    let question = Question::new("web.default.svc.cluster.local".parse()?, RecordType::A);
    println!("{:?}", zone.answer(&question, 0));
    let mut store = Store::new(Config::new("node-1"));
    println!("{} warnings", store.apply(Event::ServiceApplied(service)).len());
    let _ = (ProxyConfig::new("node-1"), ProxyEvent::Synced);

    let table = NftTable::new(TableId::new(Family::Inet, Name::new("web")?));
    let _ = Family::from(IpFamily::V6);
    let edits = diff([], &[Object::from(table)]);
    assert!(matches!(edits[..], [Edit::Add(_)]));
    print!("{}", Transaction::from_edits(&edits));
    let packet = Packet::tcp("127.0.0.1:40000".parse()?, "127.0.0.1:80".parse()?);
    for outcome in Evaluator::new(&Ruleset::new()).evaluate(&packet, &Host::new())? {
        print!("{outcome}");
    }
    println!("{}", Rule::parse("-p tcp --dport 22 -j ACCEPT")?);
    print!("{}", Sets::parse("create web hash:ip\n", &[])?);
    print!("{}", "-A -t 10.0.0.1:80 -s rr\n".parse::<Table>()?);
    println!("{:?}", Filter::new().with_protocol(FlowProtocol::UDP));
    println!("{} {} {:?}", Link::new("eth0")?, Errno::NOENT, NetworkType::L2Bridge);
    let (mut manifests, _) = Manifests::watch(Path::new("consumer"))?;
    println!("{} events", manifests.poll(Duration::ZERO).events.len());
    println!("{} flows", CleanupReport::default().deleted);
    let _: Option<vipline_service_ip_kube::Client> = None;
    Ok(())
}
