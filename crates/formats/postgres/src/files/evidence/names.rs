//! Whose file is this: the catalogues of each database, read when its folder is
//! come upon and kept for its other tablespaces.
//!
//! Memory: 65 bytes or so a relation, with its name.

use std::collections::HashMap;
use std::sync::Arc;

use crate::files::catalogue::relations::{Relation, RelationKind, Relations};
use crate::files::catalogue::transactions::Moment;
use crate::files::catalogue::{
    Catalogue, DEFAULT_TABLESPACE, Database, Databases, GLOBAL_TABLESPACE,
};
use crate::files::evidence::Identity;
use crate::files::state::Circumstances;

/// The catalogues of a cluster, as far as they were needed.
#[derive(Debug)]
pub(in crate::files) struct Books {
    catalogue: Option<Catalogue>,
    moment: Moment,
    databases: Databases,
    /// By the database's oid; 0 for what belongs to the whole cluster.
    relations: HashMap<u32, Arc<Relations>>,
}

impl Books {
    pub(in crate::files) fn open(
        catalogue: Option<Catalogue>,
        circumstances: Circumstances,
    ) -> Self {
        let moment = match circumstances {
            Circumstances::AtRest => Moment::AtRest,
            Circumstances::Running
            | Circumstances::RunningUnsynced
            | Circumstances::RunningUnsettled => Moment::Running,
            Circumstances::StandbyAtRest
            | Circumstances::Crashed
            | Circumstances::Backup
            | Circumstances::Unknown
            | Circumstances::Unreadable => Moment::Unrecovered,
        };
        let databases =
            catalogue.as_ref().map(|catalogue| catalogue.databases(moment)).unwrap_or_default();
        Self { catalogue, moment, databases, relations: HashMap::new() }
    }

    /// The catalogues themselves; `None` for versions whose rows are unknown.
    pub(in crate::files) fn catalogue(&self) -> Option<&Catalogue> {
        self.catalogue.as_ref()
    }

    /// What the files are: at rest, running, or neither.
    pub(in crate::files) fn moment(&self) -> Moment {
        self.moment
    }

    /// All databases that a catalogue lists.
    pub(in crate::files) fn databases(&self) -> &Databases {
        &self.databases
    }

    /// The database of that oid, if there is no doubt which one that is.
    pub(in crate::files) fn database(&self, oid: u32) -> Option<&Database> {
        self.databases.listed.iter().find(|database| database.oid == oid)
    }

    /// The relations of a database, or of the whole cluster; `None` if its
    /// catalogues are not known.
    pub(in crate::files) fn relations(&mut self, database: Option<u32>) -> Option<Arc<Relations>> {
        let key = database.unwrap_or(0);
        if let Some(known) = self.relations.get(&key) {
            return Some(Arc::clone(known));
        }
        let catalogue = self.catalogue.as_ref()?;
        let relations = match database {
            None => catalogue.shared(&self.databases, self.moment),
            Some(oid) => catalogue.relations(self.database(oid)?, self.moment),
        };
        let relations = Arc::new(relations);
        self.relations.insert(key, Arc::clone(&relations));
        Some(relations)
    }

    /// What the catalogues say of a file.
    pub(in crate::files) fn identify(
        &mut self,
        tablespace: u32,
        database: Option<u32>,
        number: u32,
    ) -> Option<Identity> {
        let relations = self.relations(database)?;
        let relation = relations.by_file(oid_of(tablespace, database), number)?;
        let name = database.and_then(|oid| self.database(oid)).map(|found| found.name.as_str());
        Some(Identity {
            database: name.map(Arc::from),
            object: relations.name(relation).into(),
            advice: advice(&relations, relation).map(Arc::from),
        })
    }
}

/// The oid of a tablespace that `pg_filenode_relation` calls 0.
pub(in crate::files) fn oid_of(tablespace: u32, database: Option<u32>) -> u32 {
    match (tablespace, database) {
        (_, None) => GLOBAL_TABLESPACE,
        (0, _) => DEFAULT_TABLESPACE,
        (tablespace, _) => tablespace,
    }
}

fn advice(relations: &Relations, relation: &Relation) -> Option<String> {
    let name = relations.name(relation);
    match relation.kind {
        RelationKind::Index if name.ends_with("(TOAST index)") => None,
        RelationKind::Index => {
            Some(format!("an index can be built anew from its table: REINDEX INDEX {name}"))
        }
        RelationKind::MaterialisedView => Some(format!(
            "a materialised view can be computed anew: REFRESH MATERIALIZED VIEW {name}"
        )),
        RelationKind::Table | RelationKind::Sequence | RelationKind::Toast => None,
    }
}
