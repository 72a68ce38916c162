//! Objects from files: parsed, validated, merged and watched.
//!
//! - [`Manifests`]: the files at a path; [`source::Update`]: events and errors of a change;
//! - [`parse`]: converts the text of a file into objects and faults, with [`tree`] for
//!   YAML and JSON, and [`typed`] for the types of the model;
//!   Plain JSON is decoded directly (`json`, `strict`);
//! - [`object`], [`fault`]: objects, and errors with their positions;
//! - [`source`]: merges all files and emits events after changes.
//!
//! Objects are validated as an API server does (`validate`).
//! Only the private module `files` does IO.

pub mod parse;

pub mod object;

pub mod fault;

pub mod tree;

pub mod typed;

mod json;

mod strict;

mod validate;

pub mod source;

mod files;

pub use files::Manifests;
