//! The columns of an Iceberg table, and the values of them that are in its books and not in all of its files.
//!
//! A file that lacks a column has this value in all of its rows: that of its partition, if the table is
//! partitioned by the column as it is; else what the column was added with; else NULL. Files that other
//! programs wrote have columns without numbers: then a list of names says which is which.
//!
//! | type | Delta's name of it | in a manifest | in the schema |
//! |---|---|---|---|
//! | `int`, `long`, `float`, `double`, `boolean`, `string` | `integer` for `int` | itself | itself |
//! | `decimal(9,2)` | the same | its digits | text |
//! | `date` | the same | days since 1970 | `2024-02-29` |
//! | `timestamptz` | `timestamp` | microseconds since 1970 | `2024-02-29T23:59:59.5+00:00` |
//! | `timestamp` | `timestamp_ntz` | the same | `2024-02-29T23:59:59.5` |
//!
//! Source: "Column Projection", "Partition Specs" and "Appendix D: Single-value serialization" in the
//! specification of Apache Iceberg.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::table::{BookValue, TableColumn};

/// A field by which files are put into partitions.
struct Field {
    /// What manifests call it.
    name: String,
    /// The column.
    of: Option<i64>,
    transform: String,
}

/// The current schema, and all partition specs.
pub(super) struct Schema {
    columns: Vec<SchemaColumn>,
    specs: HashMap<i64, Vec<Field>>,
    /// Columns by which files are partitioned as they are.
    partitions: HashSet<i64>,
}

struct SchemaColumn {
    id: i64,
    name: String,
    /// A simple type.
    kind: Option<String>,
    /// What it was added with.
    default: Option<Value>,
    other_names: Vec<String>,
}

fn id_of(it: &Value, name: &str) -> Option<i64> {
    it.get(name).and_then(Value::as_i64)
}

fn text<'a>(it: &'a Value, name: &str) -> Option<&'a str> {
    it.get(name).and_then(Value::as_str)
}

fn list<'a>(it: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    it.get(name).and_then(Value::as_array).into_iter().flatten()
}

impl Schema {
    /// That of a state.
    pub fn of(metadata: &Value) -> Self {
        let wanted = id_of(metadata, "current-schema-id");
        let current = list(metadata, "schemas").find(|it| id_of(it, "schema-id") == wanted);
        let schema = current.or_else(|| metadata.get("schema")).unwrap_or(&Value::Null);
        let mapping =
            metadata.get("properties").and_then(|it| text(it, "schema.name-mapping.default"));
        let mapping = mapping.and_then(|text| serde_json::from_str::<Value>(text).ok());
        let mapped = mapping.as_ref().and_then(Value::as_array);
        let names_of = |id: i64| {
            let mut all = mapped.into_iter().flatten();
            let one = all.find(|it| id_of(it, "field-id") == Some(id));
            let names = one.into_iter().flat_map(|it| list(it, "names"));
            names.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let column = |field: &Value| {
            let id = id_of(field, "id")?;
            Some(SchemaColumn {
                id,
                name: text(field, "name")?.to_owned(),
                kind: text(field, "type").map(kind_of),
                default: field.get("initial-default").filter(|it| !it.is_null()).cloned(),
                other_names: names_of(id),
            })
        };
        let columns = list(schema, "fields").filter_map(column).collect();
        let fields = |spec: &Value, name: &str| {
            let field = |it: &Value| {
                Some(Field {
                    name: text(it, "name")?.to_owned(),
                    of: id_of(it, "source-id"),
                    transform: text(it, "transform")?.to_owned(),
                })
            };
            list(spec, name).filter_map(field).collect::<Vec<_>>()
        };
        let specs = list(metadata, "partition-specs");
        let mut specs: HashMap<_, _> =
            specs.filter_map(|it| Some((id_of(it, "spec-id")?, fields(it, "fields")))).collect();
        if specs.is_empty() {
            specs.insert(0, fields(metadata, "partition-spec"));
        }
        let identities = specs.values().flatten().filter(|field| field.transform == "identity");
        let partitions = identities.filter_map(|field| field.of).collect();
        Self { columns, specs, partitions }
    }

    /// The columns.
    pub fn columns(&self) -> Vec<TableColumn> {
        let column = |it: &SchemaColumn| {
            let is_in_books = it.default.is_some() || self.partitions.contains(&it.id);
            TableColumn {
                name: it.name.clone(),
                in_files: it.name.clone(),
                id: Some(it.id),
                other_names: it.other_names.clone(),
                may_be_in_books: is_in_books && it.kind.is_none(),
                kind: it.kind.clone().filter(|_| is_in_books),
            }
        };
        self.columns.iter().map(column).collect()
    }

    /// The partition of a file, as text that is equal for files of the same one; `None` without partitions.
    pub fn partition(&self, spec: i64, partition: &Value) -> Option<String> {
        let fields = self.specs.get(&spec).map(Vec::as_slice).unwrap_or_default();
        let is_partitioned = fields.iter().any(|field| field.transform != "void");
        is_partitioned.then(|| format!("{spec} {partition}"))
    }

    /// The values that columns have in all rows of a file of a partition, if it lacks them.
    ///
    /// # Errors
    /// The manifest does not have one, for people.
    pub fn values(&self, spec: i64, partition: &Value) -> Result<Vec<(String, BookValue)>, String> {
        let fields = self.specs.get(&spec);
        let fields =
            fields.ok_or_else(|| format!("its partitions are of a kind, {spec}, that it lacks"))?;
        let mut values = Vec::new();
        for column in &self.columns {
            let is_it =
                |field: &&Field| field.of == Some(column.id) && field.transform == "identity";
            let name = || column.name.clone();
            let kind = column.kind.as_deref().unwrap_or_default();
            if let Some(field) = fields.iter().find(is_it) {
                let stored = partition.get(&field.name);
                let stored = stored.or_else(|| partition.get(avro_name(&field.name)));
                let value = stored.and_then(|stored| of_manifest(kind, stored));
                let value = value.ok_or_else(|| {
                    format!("the values of {} in its partitions cannot be read", column.name)
                })?;
                values.push((name(), value));
            } else if let Some(default) = column.default.as_ref().filter(|_| column.kind.is_some())
            {
                let value = of_schema(kind, default);
                let value = value.ok_or_else(|| {
                    format!("what {} is in files that lack it cannot be read", column.name)
                })?;
                values.push((name(), value));
            }
        }
        Ok(values)
    }
}

/// What Delta calls a type.
fn kind_of(kind: &str) -> String {
    let name = match kind {
        "int" => "integer",
        "timestamptz" => "timestamp",
        "timestamp" => "timestamp_ntz",
        other => other,
    };
    name.to_owned()
}

/// A value as manifests have it; `None` if it is none.
fn of_manifest(kind: &str, value: &Value) -> Option<BookValue> {
    Some(match value {
        Value::Null => BookValue::Null,
        Value::Bool(value) => BookValue::Text(value.to_string()),
        Value::Number(number) if ["date", "timestamp", "timestamp_ntz"].contains(&kind) => {
            BookValue::Since1970(number.as_i64()?)
        }
        Value::Number(number) => BookValue::Text(number.to_string()),
        Value::String(text) => BookValue::Text(text.clone()),
        Value::Array(_) | Value::Object(_) => return None,
    })
}

/// A value as the schema has it.
fn of_schema(kind: &str, value: &Value) -> Option<BookValue> {
    let Some(text) = value.as_str() else { return of_manifest(kind, value) };
    Some(BookValue::Text(match kind {
        "timestamp" => text.strip_suffix("+00:00").map(|text| format!("{text}Z"))?,
        "timestamp_ntz" => text.replacen('T', " ", 1),
        _ => text.to_owned(),
    }))
}

/// What a field is called in Avro, whose names are letters, digits and `_`, and begin with no digit.
fn avro_name(name: &str) -> String {
    let mut safe = String::new();
    for (index, letter) in name.chars().enumerate() {
        match letter {
            '_' => safe.push('_'),
            letter if letter.is_alphabetic() => safe.push(letter),
            digit if digit.is_numeric() && index > 0 => safe.push(digit),
            digit if digit.is_numeric() => safe.extend(['_', digit]),
            other => safe.push_str(&format!("_x{:X}", u32::from(other))),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Schema {
        Schema::of(&json!({
            "current-schema-id": 1,
            "schemas": [
                { "schema-id": 0, "fields": [] },
                { "schema-id": 1, "fields": [
                    { "id": 1, "name": "id", "type": "long" },
                    { "id": 2, "name": "a day", "type": "date" },
                    { "id": 3, "name": "price", "type": "decimal(9, 2)" },
                    { "id": 4, "name": "at", "type": "timestamptz",
                      "initial-default": "2020-02-29T12:00:00.500000+00:00" },
                    { "id": 5, "name": "parts", "type": { "type": "list", "element": "int" },
                      "initial-default": [1] },
                ] },
            ],
            "partition-specs": [
                { "spec-id": 0, "fields": [] },
                { "spec-id": 1, "fields": [
                    { "source-id": 1, "field-id": 1000, "name": "id_bucket", "transform": "bucket[4]" },
                    { "source-id": 2, "field-id": 1001, "name": "a day", "transform": "identity" },
                ] },
                { "spec-id": 2, "fields": [
                    { "source-id": 1, "field-id": 1000, "name": "id", "transform": "void" },
                ] },
            ],
            "properties": { "schema.name-mapping.default":
                "[{\"field-id\": 1, \"names\": [\"id\", \"number\"]}]" },
        }))
    }

    #[test]
    fn columns_are_those_of_the_current_schema_and_say_what_may_be_in_the_books() {
        let columns = schema().columns();
        let found: Vec<_> = columns
            .iter()
            .map(|it| (it.name.as_str(), it.kind.as_deref(), it.may_be_in_books))
            .collect();
        let expected = [
            ("id", None, false),
            ("a day", Some("date"), false),
            ("price", None, false),
            ("at", Some("timestamp"), false),
            ("parts", None, true),
        ];
        assert_eq!(found, expected);
        assert_eq!(columns[0].other_names, ["id", "number"]);
    }

    #[test]
    fn files_have_the_values_of_their_partition_and_of_what_was_added() {
        let schema = schema();
        let at = || BookValue::Text("2020-02-29T12:00:00.500000Z".to_owned());
        let added = ("at".to_owned(), at());
        assert_eq!(schema.values(0, &json!({})), Ok(vec![added.clone()]));
        for (partition, day) in [
            (json!({ "id_bucket": 3, "a_x20day": 0 }), BookValue::Since1970(0)),
            (json!({ "id_bucket": 3, "a day": -1 }), BookValue::Since1970(-1)),
            (json!({ "id_bucket": 3, "a_x20day": null }), BookValue::Null),
        ] {
            let expected = vec![("a day".to_owned(), day), added.clone()];
            assert_eq!(schema.values(1, &partition), Ok(expected), "{partition}");
        }
        for partition in [json!({ "id_bucket": 3 }), json!({ "a_x20day": 1.5 }), Value::Null] {
            assert!(schema.values(1, &partition).is_err(), "{partition}");
        }
        assert!(schema.values(3, &json!({})).is_err());
    }

    #[test]
    fn partitions_are_equal_only_in_one_way_of_making_them() {
        let schema = schema();
        let partition = json!({ "id_bucket": 3, "a_x20day": 0 });
        assert_eq!(schema.partition(1, &partition), schema.partition(1, &partition.clone()));
        assert_ne!(
            schema.partition(1, &partition),
            schema.partition(1, &json!({ "id_bucket": 4 }))
        );
        assert_eq!(schema.partition(0, &json!({})), None);
        assert_eq!(schema.partition(2, &json!({ "id": null })), None);
    }

    #[test]
    fn names_are_those_of_avro() {
        for (name, safe) in
            [("kind", "kind"), ("a day", "a_x20day"), ("1st", "_1st"), ("a-b", "a_x2Db")]
        {
            assert_eq!(avro_name(name), safe);
        }
    }
}
