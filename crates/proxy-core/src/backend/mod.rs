//! The ways to program Services, one folder each.
//!
//! A new mode is a folder with the files of the others, a variant of [`Mode`]
//! and its arms here.

use std::fmt;
use std::str::FromStr;

use vipline_reconcile::{Edit, Keyed};
use vipline_service_model::{Family, ServicePort};

use crate::driver::{Absent, Drive, Driver};
use crate::{Context, Error};

#[cfg(feature = "nftables")]
pub mod nftables;

/// What a mode is: the objects that it wants for what.
///
/// There is no `self` and no error: a planner is a translation.
pub trait Planner {
    /// An entry of the state that the mode programs.
    type Object: Keyed;

    /// Returns the objects that are there whatever Services there are.
    fn base(cx: &Context) -> Vec<Self::Object>;

    /// Returns the objects that one service port wants.
    fn port(cx: &Context, port: &ServicePort) -> Vec<Self::Object>;

    /// Tells whether an object, once made, stays until the next start.
    ///
    /// Such objects are shared, few, and harmless when nothing uses them.
    fn lingers(_object: &Self::Object) -> bool {
        false
    }

    /// Returns edits as text that the mode's native tool applies.
    fn script(edits: &[Edit<Self::Object>]) -> String;

    /// Returns a whole state as text that the mode's native tool loads.
    ///
    /// Equal states give equal text, whatever their order.
    fn listing<'a>(objects: impl Iterator<Item = &'a Self::Object>) -> String
    where
        Self::Object: 'a;
}

/// A way to program Services.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "nftables", derive(Default))]
#[non_exhaustive]
pub enum Mode {
    /// One nf_tables table per family, with constant rules.
    #[cfg(feature = "nftables")]
    #[default]
    Nftables,
}

impl Mode {
    /// The modes built in.
    pub const ALL: &[Self] = &[
        #[cfg(feature = "nftables")]
        Self::Nftables,
    ];

    /// Returns the name as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            #[cfg(feature = "nftables")]
            Self::Nftables => "nftables",
        }
    }

    /// Returns the names of the modes built in, for messages.
    pub fn names() -> String {
        let names: Vec<_> = Self::ALL.iter().map(|mode| mode.name()).collect();
        names.join(", ")
    }

    /// Makes the driver of a family, and opens its kernel.
    pub(crate) fn open(self, family: Family) -> Result<Box<dyn Drive>, Error> {
        match self {
            #[cfg(feature = "nftables")]
            Self::Nftables => {
                let kernel = nftables::Kernel::open(family)?;
                Ok(Box::new(Driver::<nftables::Planner, _>::new(family, kernel)))
            }
        }
    }

    /// Makes the driver of a family that has no kernel.
    pub(crate) fn plan(self, family: Family) -> Box<dyn Drive> {
        match self {
            #[cfg(feature = "nftables")]
            Self::Nftables => {
                let driver = Driver::<nftables::Planner, _>::new(family, Absent::default());
                Box::new(driver)
            }
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let mut modes = Self::ALL.iter().copied();
        modes
            .find(|mode| mode.name() == name)
            .ok_or_else(|| Error::NoSuchMode(name.into()))
    }
}
