//! The one integration binary. Modules `lab_*` want real nodes (root, Docker): nextest's
//! profile `lab` runs them.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking"
)]
#![expect(
    clippy::too_many_lines,
    clippy::wildcard_enum_match_arm,
    reason = "a test's table is read from top to bottom, and is about some variants"
)]
#![expect(clippy::disallowed_methods, reason = "tests run tasks and read files")]

mod any_file;
mod cli_support;
mod differences;
mod docs_commands;
mod etcd_support;
mod fake;
mod fake_api;
mod operator_rig;
mod real;
mod sim;
mod soak;

mod cli_certs;
mod cli_clusters;
mod cli_config;
mod cli_files;
mod cli_images;
mod cli_json;
mod cli_node;
mod cli_rke;
mod cli_ssh_config;
mod cli_status;
mod cli_unreachable;
mod cli_usage;
mod config_bad;
mod config_golden;
mod config_keys;
mod config_objects;
mod config_survives;
mod config_users;
mod contract;
mod converge;
mod deploy;
mod docs_site;
mod encryption;
mod etcd_members;
mod external_etcd;
mod fake_api_contract;
mod golden_files;
mod guards;
mod host_bastion;
mod host_certificates;
mod host_docker;
mod host_errors;
mod host_guards;
mod host_login;
mod host_watch;
mod install;
mod joint_addresses;
mod joint_authorities;
mod joint_back;
mod joint_encryption;
mod joint_last_snapshot;
mod joint_lost;
mod joint_nodes;
mod joint_ownership;
mod joint_properties;
mod joint_reboot;
mod joint_restore;
mod joint_roles;
mod joint_service_accounts;
mod joint_snapshot_before;
mod joint_watch;
mod joint_worlds;
mod lab_accepts;
mod lab_air_gap;
mod lab_before;
mod lab_certs;
mod lab_charts;
mod lab_cri;
mod lab_deploy;
mod lab_disk;
mod lab_distributions;
mod lab_docs;
mod lab_doctor;
mod lab_encryption;
mod lab_etcd;
mod lab_external_etcd;
mod lab_foreign;
mod lab_ha_authorities;
mod lab_ha_back;
mod lab_ha_broken;
mod lab_ha_ended;
mod lab_ha_gone;
mod lab_ha_killed;
mod lab_ha_learner;
mod lab_ha_load;
mod lab_ha_networks;
mod lab_ha_operations;
mod lab_ha_operator;
mod lab_ha_profiles;
mod lab_ha_proof;
mod lab_ha_reboot;
mod lab_ha_renewal;
mod lab_ha_reset;
mod lab_ha_restore;
mod lab_ha_rounds;
mod lab_ha_slow;
mod lab_ha_status;
mod lab_ha_writers;
mod lab_hiccup;
mod lab_hints;
mod lab_kill;
mod lab_kill_operator;
mod lab_lost;
mod lab_lost_node;
mod lab_many;
mod lab_many_killed;
mod lab_monitoring;
mod lab_mounts;
mod lab_moves;
mod lab_network;
mod lab_operator;
mod lab_owner;
mod lab_pods;
mod lab_pods_killed;
mod lab_profiles;
mod lab_pruned;
mod lab_reach;

mod lab_refine;
mod lab_refused;
mod lab_registries;
mod lab_remove;
mod lab_replaced;
mod lab_restore;
mod lab_rkespec;
mod lab_rotate;
mod lab_schema;
mod lab_secrets;
mod lab_self;
mod lab_snapshot_agent;
mod lab_snapshot_copies;
mod lab_snapshots;
mod lab_soak;
mod lab_stranger;
mod lab_up;
mod lab_versions;
mod lab_ways;
mod operator_approval;
mod operator_bad;
mod operator_deletion;
mod operator_faults;
mod operator_gitops;
mod operator_held;
mod operator_hints;
mod operator_invariants;
mod operator_kubeconfig;
mod operator_lifecycle;
mod operator_logs;
mod operator_moves;
mod operator_nodes;
mod operator_operations;
mod operator_process;
mod operator_queue;
mod operator_sight;
mod operator_sources;
mod operator_spared;
mod operator_writes;
mod plan_charts;
mod plan_foreign;
mod plan_images;
mod plan_invariants;
mod plan_nodes;
mod plan_properties;
mod plan_remove;
mod plan_rolls;
mod plan_shown;
mod plan_state;
mod plan_up;
mod purity;
mod scripts;
mod second_look;
mod status;
mod status_conditions;
mod turns;
mod unasked;
mod upgrade;
mod words;
