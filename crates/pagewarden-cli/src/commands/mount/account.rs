//! Users and groups by their names, as the files of the system list them.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use pagewarden_mount::Owner;

/// `postgres`, `postgres:postgres`, `101:104`. Without a group it is the user's own.
pub fn owner(text: &str) -> Result<Owner> {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    find(text, &users, &groups)
}

fn find(text: &str, users: &str, groups: &str) -> Result<Owner> {
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    ensure!(!user.is_empty(), "'{text}' names no user (try postgres, or 101:104)");
    let line = |list: &str, name: &str| {
        let found = list.lines().find(|line| line.split(':').next() == Some(name));
        found.map(|line| line.split(':').map(str::to_owned).collect::<Vec<_>>())
    };
    let number = |fields: &[String], index: usize| fields.get(index)?.parse::<u32>().ok();
    let account = line(users, user);
    let by_name = account.as_ref().and_then(|fields| number(fields, 2));
    let user_number = by_name.or_else(|| user.parse().ok());
    let user_number = user_number
        .with_context(|| format!("there is no user '{user}' here\nhint: give a number"))?;
    let group_number = match group {
        Some(group) => {
            let by_name = line(groups, group).and_then(|fields| number(&fields, 2));
            by_name
                .or_else(|| group.parse().ok())
                .with_context(|| format!("there is no group '{group}' here\nhint: give a number"))?
        }
        None => account.as_ref().and_then(|fields| number(fields, 3)).with_context(|| {
            format!("whose group? user {user} is not listed here\nhint: USER:GROUP")
        })?,
    };
    Ok(Owner { user: user_number, group: group_number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_names_or_numbers() {
        let users = "root:x:0:0:root:/root:/bin/sh\npostgres:x:101:104:,,,:/var/lib:/bin/sh\n";
        let groups = "root:x:0:\nmysql:x:107:postgres\n";
        let found = |text: &str| {
            find(text, users, groups)
                .map(|owner| (owner.user, owner.group))
                .map_err(|e| e.to_string())
        };
        assert_eq!(found("postgres"), Ok((101, 104)));
        assert_eq!(found("postgres:mysql"), Ok((101, 107)));
        assert_eq!(found("5:6"), Ok((5, 6)));
        assert_eq!(found("postgres:9"), Ok((101, 9)));
        for text in ["", ":", "nobody", "7", "postgres:users", "-1:0"] {
            assert!(found(text).is_err(), "{text}");
        }
    }
}
