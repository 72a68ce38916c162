#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod message;

mod name;

mod options;

mod index;

mod text;

mod zone;

pub use message::{Answer, Question, Record, RecordData, RecordType, ResponseCode, Soa};
pub use name::{Name, ParseError};
pub use options::{Options, PodRecords};
pub use vipline_service_model as service_model;
pub use zone::Zone;
