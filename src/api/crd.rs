//! The definitions as YAML, for `rke-operator crd` and `crds/`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde::ser::Error as _;
use serde_saphyr::SerializeError;

use super::{Cluster, ClusterOperation, Kubeconfig, SCHEMA, SCHEMA_VERSION};

/// Our definitions, each with the name of its file in `crds/`.
pub fn definitions() -> [(&'static str, CustomResourceDefinition); 3] {
    [
        ("clusters.yaml", numbered(Cluster::crd())),
        ("kubeconfigs.yaml", numbered(Kubeconfig::crd())),
        ("clusteroperations.yaml", numbered(ClusterOperation::crd())),
    ]
}

fn numbered(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let number = SCHEMA.to_string();
    let annotations = crd.metadata.annotations.get_or_insert_default();
    annotations.insert(SCHEMA_VERSION.to_owned(), number);
    crd
}

/// One definition as a YAML document.
pub fn definition_yaml(crd: &CustomResourceDefinition) -> Result<String, SerializeError> {
    // Through a value: maps of a value are sorted, whatever the order of fields is.
    serde_json::to_value(crd)
        .map_err(SerializeError::custom)
        .and_then(|value| serde_saphyr::to_string(&value))
}

/// Every definition, ready for `kubectl apply -f -`.
pub fn crds() -> Result<String, SerializeError> {
    let documents: Vec<String> = definitions()
        .iter()
        .map(|(_, crd)| definition_yaml(crd))
        .collect::<Result<_, _>>()?;
    Ok(documents.join("---\n"))
}

#[cfg(test)]
mod tests {
    #![expect(
        clippy::disallowed_methods,
        reason = "compares with the files in the repository"
    )]

    use std::path::Path;

    use sha2::{Digest, Sha256};

    use kube::core::cel::{ScopeContext, WarningKind, analyze_rule, compile_schema};

    use super::*;

    #[test]
    fn checked_in_definitions_are_current() {
        for (file, crd) in definitions() {
            let path = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("crds")
                .join(file);
            let now = definition_yaml(&crd).unwrap();
            if std::env::var_os("UPDATE_CRDS").is_some() {
                std::fs::write(&path, &now).unwrap();
            }
            let there = std::fs::read_to_string(&path).unwrap_or_default();
            assert_eq!(
                there, now,
                "crds/{file} is stale: run `UPDATE_CRDS=1 cargo test --lib checked_in_definitions`"
            );
        }
    }

    /// What an operator of this release writes, one with an older schema would throw away. Columns
    /// and descriptions throw nothing away.
    #[test]
    fn another_schema_has_another_number() {
        fn bare(schema: &mut serde_json::Value, is_schema: bool) {
            if let Some(map) = schema.as_object_mut() {
                if is_schema {
                    map.remove("description");
                }
                for (key, below) in map {
                    bare(below, !(is_schema && key == "properties"));
                }
            }
        }
        let mut digest = Sha256::new();
        for (_, crd) in definitions() {
            let schema = crd.spec.versions[0].schema.as_ref().unwrap();
            let schema = schema.open_api_v3_schema.as_ref().unwrap();
            let mut schema = serde_json::to_value(schema).unwrap();
            bare(&mut schema, true);
            digest.update(schema.to_string());
        }
        let digest = hex::encode(digest.finalize());
        assert_eq!(
            (SCHEMA, &digest[..16]),
            (16, "39746888b3baf89b"),
            "the schema changed: raise `api::SCHEMA`, then write number and digest here"
        );
    }

    #[test]
    fn printed_definitions_can_be_read_back() {
        let yaml = crds().unwrap();
        let documents: Vec<CustomResourceDefinition> = serde_saphyr::from_multiple(&yaml).unwrap();
        assert_eq!(
            documents,
            definitions().map(|(_, crd)| crd),
            "a YAML round trip changes nothing"
        );
    }

    /// Every printed column leads to a field of the schema.
    #[test]
    fn every_column_leads_somewhere() {
        for (file, crd) in definitions() {
            let version = &crd.spec.versions[0];
            let schema = serde_json::to_value(
                version
                    .schema
                    .as_ref()
                    .unwrap()
                    .open_api_v3_schema
                    .as_ref()
                    .unwrap(),
            )
            .unwrap();
            for column in version.additional_printer_columns.as_ref().unwrap() {
                let mut at = &schema;
                if column.json_path == ".metadata.creationTimestamp" {
                    continue;
                }
                for part in column.json_path.trim_start_matches('.').split('.') {
                    let field = part.split('[').next().unwrap();
                    at = &at["properties"][field];
                    assert!(
                        !at.is_null(),
                        "{file}: `{}` leads nowhere",
                        column.json_path
                    );
                    if part.contains("[?(@") {
                        break;
                    }
                    if part.contains('[') {
                        at = &at["items"];
                    }
                }
            }
        }
    }

    /// `kubectl explain` has a word for every field, in lists and maps too, and below `config`.
    #[test]
    fn every_field_is_described() {
        fn walk(path: &str, schema: &serde_json::Value) {
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                let path = format!("{path}.{name}");
                let text = field["description"].as_str().unwrap_or_default();
                assert!(text.trim().len() > 3, "{path} has no description");
                // What a person may write is explained there; what the status has, in the documents.
                let values = field["enum"].as_array().into_iter().flatten();
                for value in values.filter_map(serde_json::Value::as_str) {
                    let is_explained = value.is_empty()
                        || path.starts_with("status")
                        || text.contains(&format!("`{value}`"));
                    assert!(is_explained, "{path} says nothing about {value}");
                }
                walk(&path, field);
            }
            for inner in ["items", "additionalProperties"] {
                if schema[inner].is_object() {
                    walk(path, &schema[inner]);
                }
            }
        }
        for (_, crd) in definitions() {
            let schema = crd.spec.versions[0].schema.as_ref().unwrap();
            let schema = serde_json::to_value(schema.open_api_v3_schema.as_ref().unwrap()).unwrap();
            walk("spec", &schema["properties"]["spec"]);
            walk("status", &schema["properties"]["status"]);
        }
    }

    /// `kubectl apply` without `--server-side` writes a copy into an annotation, which has at most 256 KiB.
    #[test]
    fn a_definition_is_small_enough_for_every_client() {
        for (file, crd) in definitions() {
            let size = serde_json::to_string(&crd).unwrap().len();
            assert!(size < 160 * 1024, "{file}: {size} bytes");
        }
    }

    #[test]
    fn rules_stay_within_the_budget() {
        fn walk(schema: &serde_json::Value) {
            let compiled = compile_schema(schema);
            for rule in schema["x-kubernetes-validations"]
                .as_array()
                .into_iter()
                .flatten()
            {
                let rule = rule["rule"].as_str().unwrap();
                for warning in analyze_rule(rule, &compiled, ScopeContext::CrdValidation) {
                    assert!(
                        !matches!(
                            warning.kind,
                            WarningKind::CostExceeded | WarningKind::MissingBounds
                        ),
                        "{rule}: {warning:?}"
                    );
                }
            }
            for field in schema["properties"].as_object().into_iter().flatten() {
                walk(field.1);
            }
        }
        for (_, crd) in definitions() {
            let schema = crd.spec.versions[0].schema.as_ref().unwrap();
            walk(&serde_json::to_value(schema.open_api_v3_schema.as_ref().unwrap()).unwrap());
        }
    }
}
