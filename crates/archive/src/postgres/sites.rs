//! The names under which collectors are archived.

use super::connect::within;
use super::{Archive, ArchiveError};

/// The name under which a collector's runs are archived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Site {
    Named(String),
    /// The one under which the database's runs are there already, else this one, such as the host's name.
    Default(String),
}

impl Archive {
    /// The uids of the runs that the archive has of a mesh, under one of its sites if that is named. None if there is no
    /// archive.
    pub async fn pushed_runs(
        &mut self,
        mesh_uid: &str,
        site: &Site,
    ) -> Result<Vec<String>, ArchiveError> {
        if self.is_absent().await? {
            return Ok(Vec::new());
        }
        let site = match site {
            Site::Named(name) => Some(name),
            Site::Default(_) => None,
        };
        let listing = sqlx::query_scalar::<_, String>(
            "SELECT p.run_uid FROM benchmesh.pushes AS p JOIN benchmesh.sites AS s ON s.site = p.site
             WHERE s.mesh_uid = $1 AND ($2::text IS NULL OR s.site = $2)",
        )
        .bind(mesh_uid)
        .bind(site)
        .fetch_all(&mut self.connection);
        within(&self.server, self.answer, "list the archived runs", listing).await
    }

    /// The site of a mesh; a name that nobody has yet becomes its own.
    pub(super) async fn claim(
        &mut self,
        site: &Site,
        mesh_uid: &str,
    ) -> Result<String, ArchiveError> {
        let doing = "register the site";
        let name = match site {
            Site::Named(name) => name.clone(),
            Site::Default(name) => {
                let known = sqlx::query_scalar::<_, String>(
                    "SELECT site FROM benchmesh.sites WHERE mesh_uid = $1 ORDER BY site",
                )
                .bind(mesh_uid)
                .fetch_all(&mut self.connection);
                let known = within(&self.server, self.answer, doing, known).await?;
                match known.as_slice() {
                    [] => name.clone(),
                    [one] => one.clone(),
                    several => {
                        return Err(ArchiveError::Wrong(format!(
                            "runs of this database are archived under several sites; choose with --site: {}",
                            several.join(", ")
                        )));
                    }
                }
            }
        };
        if name.is_empty() || name.contains([':', '\0']) {
            return Err(ArchiveError::Wrong(format!(
                "a site's name is not empty and has no colon: {name:?}"
            )));
        }
        let claiming = async {
            sqlx::query("INSERT INTO benchmesh.sites (site, mesh_uid) VALUES ($1, $2) ON CONFLICT DO NOTHING")
                .bind(&name)
                .bind(mesh_uid)
                .execute(&mut self.connection)
                .await?;
            sqlx::query_scalar::<_, String>("SELECT mesh_uid FROM benchmesh.sites WHERE site = $1")
                .bind(&name)
                .fetch_one(&mut self.connection)
                .await
        };
        let owner = within(&self.server, self.answer, doing, claiming).await?;
        if owner != mesh_uid {
            return Err(ArchiveError::Wrong(format!(
                "site {name:?} is another collector's (mesh {owner}, this database is of mesh {mesh_uid}): choose \
                 another name with --site. If that collector is gone for good and this one takes its place, an \
                 administrator runs: UPDATE benchmesh.sites SET mesh_uid = '{mesh_uid}' WHERE site = '{}'",
                name.replace('\'', "''")
            )));
        }
        Ok(name)
    }
}
