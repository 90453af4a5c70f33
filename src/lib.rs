//! `rke-operator`: runs Kubernetes in Docker containers on your servers, over SSH, from one `cluster.yml`.
//!
//! ```text
//!              ┌──────────────── pure: no clock, no randomness, no I/O ────────────────┐
//! cluster.yml ─┐
//! Cluster CR  ─┴▶ config ──validate──▶ Intent ──────────▶ Desired ─┐
//! saved keys  ────────────────────────────────────▲               ├─diff─▶ Diff ─schedule─▶ Plan ─check─┐
//! hosts, API  ~~read~▶ Actual ────────────────────────────────────┘                                     │
//!                                                                                                       ▼
//! lines · JSON · status conditions · Kubernetes events · tracing ◀─────────── Events ───── apply ~~▶ hosts, API
//! ```
//!
//! `config → desired against actual → diff → plan → apply`; `~~` is I/O. Read this file, then
//! [`converge`], then [`plan::up`]: that is the whole program. `docs/architecture.md` has the
//! reasons, `docs/invariants.md` the rules that keep clusters alive.

pub mod api;
pub mod apply;
pub mod bundle;
pub mod catalog;
pub mod cli;
pub mod config;
pub mod converge;
pub mod desired;
pub mod environment;
pub mod error;
pub mod etcd;
pub mod facts;
pub mod host;
mod lease;
pub mod model;
pub mod operator;
pub mod plan;
pub mod snapshots;
pub mod state;
pub mod status;
pub mod survey;
pub mod workload;
