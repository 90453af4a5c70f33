//! Values of charts, put together from ours and the user's.

use serde_json::Value;

use crate::model::Secret;

/// The user's, laid over ours: mappings key by key, everything else as a whole.
pub(super) fn with(mut ours: Value, users: Option<&Secret<String>>) -> Value {
    if let Some(users) = users {
        lay_over(&mut ours, json(users));
    }
    ours
}

/// What a config holds as JSON, because there may be passwords in it.
pub(super) fn json(text: &Secret<String>) -> Value {
    serde_json::from_str(text.expose()).unwrap_or_default()
}

/// What is above counts.
pub(super) fn lay_over(below: &mut Value, above: Value) {
    match (below, above) {
        (Value::Object(below), Value::Object(above)) => {
            for (key, value) in above {
                lay_over(below.entry(key).or_insert(Value::Null), value);
            }
        }
        (below, above) => *below = above,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_users_win_key_by_key() {
        let users = json!({"a": {"b": 2, "c": null}, "d": [3]})
            .to_string()
            .into();
        assert_eq!(
            with(json!({"a": {"b": 1, "e": 1}, "d": [1, 2]}), Some(&users)),
            json!({"a": {"b": 2, "c": null, "e": 1}, "d": [3]})
        );
    }
}
