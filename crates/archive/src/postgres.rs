//! The archive of many collectors in one PostgreSQL server: runs are pushed there, searched, and fetched back.
//!
//! | what happens | file |
//! | --- | --- |
//! | a URL is read, a connection made, a lost one made again | `url`, `connect` |
//! | what the server says, in words | `error` |
//! | the schema `benchmesh` is made or brought up to date | `schema`, `migrations/` |
//! | a run is compared with the archive's copy and copied | `push`, `revision`, `reader`, `write`, `value` |
//! | the name of a collector is registered | `sites` |
//! | runs are listed, and one is copied back into a file | `runs`, `fetch` |
//!
//! A run is whole in the archive or not there: whatever is written of it is one transaction. It has its own copy of its
//! hosts, agents and daemons, so that replacing it touches nothing else. Nothing here prints, and dropping a future
//! leaves the archive as it was before the run in progress.

pub mod connect;
mod date;
mod error;
pub mod fetch;
mod fnv;
pub mod push;
mod reader;
mod revision;
pub mod runs;
pub mod schema;
mod sites;
pub mod url;
mod value;
mod write;

pub use connect::{Archive, Patience};
pub use error::ArchiveError;
pub use sites::Site;
pub use url::{Server, UrlOrigin};
