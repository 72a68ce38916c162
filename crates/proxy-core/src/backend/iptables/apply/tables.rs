//! Access to the tables of iptables of one family.

use vipline_iptables::matches::Nfacct;
use vipline_iptables::targets::Target;
use vipline_iptables::{Client, Rule, TableName, Variant, nft};
use vipline_nftables::Generation;
use vipline_reconcile::Attempt;
use vipline_service_model::Family;

use super::batch::Batch;
use super::installed::Installed;
use super::own_commits::Trace;
use super::program_error::of_program;
use super::{netlink, programs};
use crate::backend::iptables::plan::extensions::test_document;
use crate::backend::iptables::plan::layout::Layout;
use crate::backend::iptables::plan::names;
use crate::{Error, IptablesBackend};

/// Access to the tables of one family.
#[derive(Debug)]
pub(super) enum Tables {
    /// The programs of iptables.
    Programs(Client),
    /// nf_tables, without programs.
    Netlink(Box<nft::Client>),
}

impl Tables {
    /// Opens the tables in the network namespace of the calling thread.
    pub(super) fn open(family: Family, backend: IptablesBackend) -> Result<Self, Error> {
        Ok(match backend {
            IptablesBackend::Netlink => Self::Netlink(Box::new(nft::Client::open(family)?)),
            _ => Self::Programs(Client::open(family).map_err(of_program)?),
        })
    }

    /// Returns the netlink port ID of the socket that commits, if there is one.
    pub(super) fn port_id(&self) -> Option<u32> {
        match self {
            Self::Programs(_) => None,
            Self::Netlink(client) => Some(client.port_id()),
        }
    }

    /// Returns whether the kernel sends notifications about changes.
    pub(super) fn has_notifications(&self) -> bool {
        match self {
            Self::Programs(client) => client.variant() == Variant::Nft,
            Self::Netlink(_) => true,
        }
    }

    /// Returns whether `MASQUERADE` has the option `--random-fully`.
    pub(super) fn has_random_fully(&self) -> bool {
        match self {
            Self::Programs(client) => client.version().has_random_fully(),
            Self::Netlink(_) => true,
        }
    }

    /// Returns whether rules can match with `nfacct`: the kernel has `xt_nfacct`, and the
    /// programs have `libxt_nfacct.so`. The counters are objects of another module,
    /// `nfnetlink_acct`, and exist without the match.
    pub(super) fn has_nfacct(&mut self) -> bool {
        let rule = Rule::new()
            .with_match(Nfacct::new(names::INVALID_DROPPED))
            .with_target(Target::Return);
        match self {
            Self::Programs(client) => {
                let document = test_document(names::FILTER, [rule.to_string()].into_iter());
                let missing = client.test_extensions(&document);
                matches!(missing, Ok(names) if names.is_empty())
            }
            Self::Netlink(client) => matches!(client.lack(&rule), Ok(None)),
        }
    }

    /// Returns the generation of nf_tables, if the tables are in nf_tables.
    ///
    /// `None` after a failure, whose only consequence is an additional dump.
    pub(super) fn generation(&mut self) -> Option<Generation> {
        match self {
            Self::Programs(client) => programs::generation(client),
            Self::Netlink(client) => client.generation().ok(),
        }
    }

    /// Reads the chains of a layout and the jumps to them.
    pub(super) fn read(&mut self, family: Family, layout: Layout) -> Result<Installed, Error> {
        let tables = layout.tables.iter().map(|name| names::table(name));
        match self {
            Self::Programs(client) => {
                let mut installed = Installed::new(layout);
                for table in tables {
                    programs::read(client, family, table, &mut installed).map_err(of_program)?;
                }
                Ok(installed)
            }
            Self::Netlink(client) => {
                let tables: Vec<_> = tables.collect();
                Ok(netlink::read(client, family, layout, &tables)?)
            }
        }
    }

    /// Returns whether a table has a chain.
    pub(super) fn has_chain(&mut self, table: TableName, chain: &str) -> Result<bool, Error> {
        match self {
            Self::Programs(client) => programs::has_chain(client, table, chain).map_err(of_program),
            Self::Netlink(client) => Ok(client.has_chain(table, names::chain(chain))?),
        }
    }

    /// Commits a batch of edits.
    pub(super) fn attempt(&mut self, trace: &Trace, batch: &Batch<'_>) -> Result<Attempt, Error> {
        match self {
            Self::Programs(client) => programs::attempt(client, trace, batch).map_err(of_program),
            Self::Netlink(client) => Ok(netlink::attempt(client, trace, batch)?),
        }
    }
}
