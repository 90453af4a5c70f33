//! What the management cluster's API answers, cut to a depth that every parser here can take. `spec.config`
//! may have anything in it, and an API server takes ten thousand levels where `serde_json` takes 128: one
//! object would make a list unreadable, and with it every other object. Pure.
//!
//! A filter over bytes with a counter and no recursion, which holds nothing but the place that it is at:
//! so a list of any size and a watch without an end pass through it.

use bytes::Bytes;

/// How deep an answer may be. An object's config is five levels down, and [`CONFIG`] levels more are
/// reported as the mistake that they are.
const LIMIT: usize = 116;

/// How deep a config may be.
pub(super) const CONFIG: usize = 100;

/// Stands where something deeper was.
const CUT: &[u8] = b"\"too deep\"";

/// Where in a text the filter is.
#[derive(Debug, Default)]
pub(super) struct Shallow {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Something was cut; how deep it began.
    cut: Option<usize>,
}

impl Shallow {
    /// The next bytes without what is too deep.
    pub(super) fn pass(&mut self, bytes: Bytes) -> Bytes {
        if self.cut.is_none() && self.fits(&bytes) {
            return bytes;
        }
        let mut kept = Vec::with_capacity(bytes.len());
        for byte in bytes {
            self.one(byte, &mut kept);
        }
        kept.into()
    }

    /// Goes through bytes of which nothing must be cut; stays where it was if something must.
    fn fits(&mut self, bytes: &[u8]) -> bool {
        let mut at = Self { cut: None, ..*self };
        for byte in bytes {
            at.step(*byte);
            if at.depth > LIMIT {
                return false;
            }
        }
        *self = at;
        true
    }

    fn step(&mut self, byte: u8) {
        if self.in_string {
            let escaped = std::mem::take(&mut self.escaped);
            match byte {
                b'\\' if !escaped => self.escaped = true,
                b'"' if !escaped => self.in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    fn one(&mut self, byte: u8, kept: &mut Vec<u8>) {
        let before = self.depth;
        self.step(byte);
        match self.cut {
            None if self.depth > LIMIT => {
                self.cut = Some(self.depth);
                kept.extend_from_slice(CUT);
            }
            None => kept.push(byte),
            // It ends with the bracket that it began with.
            Some(depth) if self.depth < depth && before == depth => self.cut = None,
            Some(_) => {}
        }
    }
}

/// How deep a value is: 1 for one that holds nothing.
pub(super) fn depth(value: &serde_json::Value) -> usize {
    let mut deepest = 0;
    let mut open = vec![(value, 1)];
    while let Some((value, level)) = open.pop() {
        deepest = deepest.max(level);
        match value {
            serde_json::Value::Array(items) => {
                open.extend(items.iter().map(|item| (item, level + 1)));
            }
            serde_json::Value::Object(fields) => {
                open.extend(fields.values().map(|field| (field, level + 1)));
            }
            serde_json::Value::Null
            | serde_json::Value::Bool(_)
            | serde_json::Value::Number(_)
            | serde_json::Value::String(_) => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn nested(open: &str, close: &str, levels: usize) -> String {
        format!("{}1{}", open.repeat(levels), close.repeat(levels))
    }

    fn cut(text: &str, piece: usize) -> String {
        let mut filter = Shallow::default();
        let mut kept = Vec::new();
        for piece in text.as_bytes().chunks(piece.max(1)) {
            kept.extend_from_slice(&filter.pass(Bytes::copy_from_slice(piece)));
        }
        assert_eq!(filter.depth, 0, "it is at the end of a text");
        String::from_utf8(kept).unwrap()
    }

    #[test]
    fn what_is_too_deep_is_cut_and_the_rest_stays() {
        for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
            for levels in [1, 100, LIMIT - 1, LIMIT, 10_000] {
                let deep = nested(open, close, levels);
                let text = format!(r#"{{"items":[{{"b":{deep},"c":"]}}\"{{["}},{{"d":[2]}}]}}"#);
                let kept = cut(&text, 7);
                let value: Value = serde_json::from_str(&kept).unwrap();
                assert_eq!(value["items"][0]["c"], "]}\"{[");
                assert_eq!(value["items"][1]["d"][0], 2);
                let fits = levels + 3 <= LIMIT;
                assert_eq!(kept == text, fits, "{levels}");
                assert!(depth(&value) <= LIMIT + 1);
                if !fits {
                    assert!(depth(&value) > CONFIG, "it is still seen to be too deep");
                }
            }
        }
    }

    #[test]
    fn each_line_of_a_watch_is_a_text() {
        let deep = nested("[", "]", 3000);
        let lines = format!("{{\"a\":{deep}}}\n{{\"b\":1}}\n");
        let kept = cut(&lines, 1000);
        let lines: Vec<Value> = kept
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines[1]["b"], 1);
    }

    proptest! {
        /// In whatever pieces it comes, the outcome is the same; and a text that fits is not touched.
        #[test]
        fn pieces_make_no_difference(
            levels in 0_usize..300,
            piece in 1_usize..64,
            words in proptest::collection::vec("[a-z\"\\\\{}\\[\\]]{0,8}", 0..6),
        ) {
            let words = serde_json::to_string(&words).unwrap();
            let text = format!("[{words},{},{words}]", nested("[", "]", levels));
            let whole = cut(&text, text.len());
            prop_assert_eq!(&cut(&text, piece), &whole);
            prop_assert!(serde_json::from_str::<Value>(&whole).is_ok());
            prop_assert_eq!(whole == text, levels < LIMIT);
        }
    }
}
