//! Checks JSON against a JSON Schema, of which it knows the keywords that the schemas in docs/schemas use.
//!
//! It is stricter than a validator, because it checks that a schema is complete: a field that the schema does not name
//! is an error, although the schema allows it, so that fields can be added. So that it can tell, a schema with
//! properties contains no other schema beside them.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// Keywords that say nothing about a value.
const ANNOTATIONS: [&str; 4] = ["$schema", "$defs", "title", "description"];

/// Keywords that lead to another schema; beside them are only annotations.
const ELSEWHERE: [&str; 2] = ["$ref", "anyOf"];

const ASSERTIONS: [&str; 9] =
    ["type", "const", "enum", "minimum", "minItems", "maxItems", "items", "required", "properties"];

/// A schema whose references stay inside its document.
#[derive(Debug)]
pub struct Schema {
    document: Value,
}

impl Schema {
    /// Reads a schema from a file.
    ///
    /// # Panics
    /// If the file is no JSON Schema of the draft 2020-12, or uses a keyword that is not known here.
    #[track_caller]
    pub fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path);
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let document = serde_json::from_str(&text);
        let document = document.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self::new(document).unwrap_or_else(|reason| panic!("{}: {reason}", path.display()))
    }

    fn new(document: Value) -> Result<Self, String> {
        if document["$schema"] != "https://json-schema.org/draft/2020-12/schema" {
            return Err("not of the draft 2020-12".to_owned());
        }
        let schema = Self { document };
        schema.is_known(&schema.document, "#")?;
        Ok(schema)
    }

    /// The schemas that others refer to, by name.
    pub fn definitions(&self) -> impl Iterator<Item = (&str, &Value)> {
        let all = self.document["$defs"].as_object().into_iter().flatten();
        all.map(|(name, schema)| (name.as_str(), schema))
    }

    fn referred(&self, reference: &Value) -> Option<&Value> {
        self.document["$defs"].get(reference.as_str()?.strip_prefix("#/$defs/")?)
    }

    /// Whether every keyword of a schema, and of those in it, is known and of the expected form.
    fn is_known(&self, schema: &Value, at: &str) -> Result<(), String> {
        let keywords = schema.as_object().ok_or_else(|| format!("{at}: not an object"))?;
        let leads = ELSEWHERE.iter().any(|keyword| keywords.contains_key(*keyword));
        for (keyword, value) in keywords {
            let at = format!("{at}/{keyword}");
            match keyword.as_str() {
                "$ref" => {
                    self.referred(value).ok_or_else(|| format!("{at}: {value} leads nowhere"))?;
                }
                "anyOf" => {
                    for one in value.as_array().ok_or_else(|| format!("{at}: not an array"))? {
                        self.is_known(one, &at)?;
                    }
                }
                known if leads && ASSERTIONS.contains(&known) => {
                    return Err(format!("{at}: it stands beside a reference or a choice"));
                }
                "items" => self.is_known(value, &at)?,
                "properties" | "$defs" => {
                    let inner = value.as_object().ok_or_else(|| format!("{at}: not an object"))?;
                    for (name, inner) in inner {
                        self.is_known(inner, &format!("{at}/{name}"))?;
                    }
                }
                known if ANNOTATIONS.contains(&known) => {}
                known if ASSERTIONS.contains(&known) => {}
                _ => return Err(format!("{at}: the keyword is not known here")),
            }
        }
        Ok(())
    }

    /// Checks a value.
    ///
    /// # Errors
    /// The first reason why the value does not match, with its place.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        self.check_at(&self.document, value, "$")
    }

    fn check_at(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let fail = |reason: String| Err(format!("{at}: {reason}"));
        if let Some(referred) = self.referred(&schema["$ref"]) {
            return self.check_at(referred, value, at);
        }
        if let Some(any) = schema["anyOf"].as_array() {
            let reasons = any.iter().map(|one| self.check_at(one, value, at).err());
            let reasons: Option<Vec<_>> = reasons.collect();
            return reasons.map_or(Ok(()), |reasons| Err(reasons.join(", nor ")));
        }
        if let Some(wanted) = schema.get("const")
            && wanted != value
        {
            return fail(format!("{value} is not {wanted}"));
        }
        if let Some(wanted) = schema["enum"].as_array()
            && !wanted.contains(value)
        {
            return fail(format!("{value} is none of {}", schema["enum"]));
        }
        if let Some(wanted) = schema.get("type") {
            let wanted =
                wanted.as_array().map_or_else(|| std::slice::from_ref(wanted), Vec::as_slice);
            if !wanted.iter().any(|wanted| is_of_type(value, wanted.as_str().unwrap_or_default())) {
                return fail(format!("{value} is not of the type {}", schema["type"]));
            }
        }
        if let (Some(least), Some(number)) = (schema["minimum"].as_f64(), value.as_f64())
            && number < least
        {
            return fail(format!("{number} is less than {least}"));
        }
        match value {
            Value::Array(values) => {
                let len = values.len() as u64;
                let least = schema["minItems"].as_u64().unwrap_or(0);
                let most = schema["maxItems"].as_u64().unwrap_or(u64::MAX);
                if !(least..=most).contains(&len) {
                    return fail(format!("{len} values"));
                }
                let items = values.iter().enumerate();
                let mut each = items.map(|(number, value)| {
                    self.check_at(&schema["items"], value, &format!("{at}[{number}]"))
                });
                each.try_for_each(|checked| checked)
            }
            Value::Object(fields) => {
                let required = schema["required"].as_array().into_iter().flatten();
                let mut required = required.filter_map(Value::as_str);
                if let Some(missing) = required.find(|name| !fields.contains_key(*name)) {
                    return fail(format!("`{missing}` is missing"));
                }
                for (name, value) in fields {
                    let Some(schema) = schema["properties"].get(name) else {
                        return fail(format!("`{name}` is not in the schema"));
                    };
                    self.check_at(schema, value, &format!("{at}.{name}"))?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => panic!("there is no type {name}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(mut document: Value) -> Result<Schema, String> {
        document["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
        Schema::new(document)
    }

    #[test]
    fn values_match_or_not() {
        let all = schema(json!({
            "type": "object",
            "required": ["n"],
            "properties": {
                "n": { "const": 1 },
                "word": { "enum": ["a", null] },
                "time": { "type": ["integer", "null"], "minimum": 2 },
                "part": { "type": "number" },
                "pair": { "type": "array", "items": { "type": "integer" }, "minItems": 2, "maxItems": 2 },
                "who": { "anyOf": [{ "$ref": "#/$defs/who" }, { "type": "null" }] },
            },
            "$defs": { "who": { "type": "object", "properties": { "id": { "type": "string" } } } },
        }));
        let all = all.expect("a schema");
        for matches in [
            json!({ "n": 1 }),
            json!({ "n": 1, "word": "a", "time": 2, "part": 0.5, "pair": [1, 2] }),
            json!({ "n": 1, "word": null, "time": null, "who": null }),
            json!({ "n": 1, "who": { "id": "x" } }),
        ] {
            assert_eq!(all.check(&matches), Ok(()));
        }
        for (differs, reason) in [
            (json!([]), "$: [] is not of the type \"object\""),
            (json!({}), "$: `n` is missing"),
            (json!({ "n": 2 }), "$.n: 2 is not 1"),
            (json!({ "n": 1, "new": 1 }), "$: `new` is not in the schema"),
            (json!({ "n": 1, "word": "b" }), "$.word: \"b\" is none of [\"a\",null]"),
            (json!({ "n": 1, "time": 1 }), "$.time: 1 is less than 2"),
            (
                json!({ "n": 1, "time": 2.5 }),
                "$.time: 2.5 is not of the type [\"integer\",\"null\"]",
            ),
            (json!({ "n": 1, "part": true }), "$.part: true is not of the type \"number\""),
            (json!({ "n": 1, "pair": [1] }), "$.pair: 1 values"),
            (json!({ "n": 1, "pair": [1, 2, 3] }), "$.pair: 3 values"),
            (
                json!({ "n": 1, "pair": [1, "x"] }),
                "$.pair[1]: \"x\" is not of the type \"integer\"",
            ),
            (
                json!({ "n": 1, "who": { "name": "x" } }),
                "$.who: `name` is not in the schema, nor $.who: {\"name\":\"x\"} is not of the type \"null\"",
            ),
        ] {
            assert_eq!(all.check(&differs), Err(reason.to_owned()));
        }
    }

    /// A keyword that is not checked would make a schema look stricter than its test.
    #[test]
    fn unknown_keywords_are_refused() {
        for (document, reason) in [
            (json!({ "pattern": "x" }), "#/pattern: the keyword is not known here"),
            (
                json!({ "items": { "maximum": 1 } }),
                "#/items/maximum: the keyword is not known here",
            ),
            (json!({ "properties": { "x": true } }), "#/properties/x: not an object"),
            (json!({ "$ref": "#/$defs/x" }), "#/$ref: \"#/$defs/x\" leads nowhere"),
            (
                json!({ "anyOf": [{ "type": "null" }], "properties": {} }),
                "#/properties: it stands beside a reference or a choice",
            ),
        ] {
            assert_eq!(schema(document).unwrap_err(), reason);
        }
        assert!(Schema::new(json!({})).is_err());
    }
}
