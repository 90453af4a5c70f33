//! Lists of the cluster's API, read page by page: a cluster with very many objects costs this process one page at a time,
//! and in the end an error that says so.

use std::fmt::Debug;

use kube::{Api, api::ListParams, core::ObjectList};
use serde::de::DeserializeOwned;

/// Objects of a page.
const PAGE: u32 = 500;
/// The most objects of a list: nodes, objects of add-ons. Kubernetes itself is made for 5000 nodes.
const MOST: usize = 20_000;

/// Hands over each object of a list.
pub(crate) async fn each<K>(
    api: &Api<K>,
    params: &ListParams,
    take: impl FnMut(K),
) -> kube::Result<()>
where
    K: Clone + DeserializeOwned + Debug,
{
    of(params, |page| async move { api.list(&page).await }, take).await
}

/// The same for any way to ask for a page.
pub(super) async fn of<K: Clone, F>(
    params: &ListParams,
    list: impl Fn(ListParams) -> F,
    mut take: impl FnMut(K),
) -> kube::Result<()>
where
    F: Future<Output = kube::Result<ObjectList<K>>>,
{
    let mut params = params.clone().limit(PAGE);
    let mut count = 0;
    loop {
        let page = list(params.clone()).await?;
        count += page.items.len();
        if count > MOST {
            let why = format!("the cluster has more than {MOST} objects of this kind");
            return Err(kube::Error::Service(why.into()));
        }
        page.items.into_iter().for_each(&mut take);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use kube::{
        api::TypeMeta,
        core::{ListMeta, PartialObjectMeta},
    };

    use super::*;

    type Object = PartialObjectMeta<k8s_openapi::api::core::v1::Node>;

    fn page(items: usize, token: Option<&str>) -> ObjectList<Object> {
        ObjectList {
            types: TypeMeta::default(),
            metadata: ListMeta {
                continue_: token.map(str::to_owned),
                ..ListMeta::default()
            },
            items: vec![Object::default(); items],
        }
    }

    #[tokio::test]
    async fn a_list_is_read_page_by_page_to_its_end() {
        let asked = RefCell::new(Vec::new());
        let mut taken = 0;
        let list = |params: ListParams| {
            asked
                .borrow_mut()
                .push((params.limit, params.continue_token.clone()));
            let answer = match params.continue_token.as_deref() {
                None => page(500, Some("second")),
                Some("second") => page(500, Some("third")),
                Some(_) => page(3, Some("")),
            };
            async { Ok(answer) }
        };
        of(&ListParams::default(), list, |_| taken += 1)
            .await
            .unwrap();
        assert_eq!(taken, 1003);
        let asked = asked.into_inner();
        assert_eq!(asked.len(), 3);
        assert!(asked.iter().all(|(limit, _)| *limit == Some(PAGE)));
        assert_eq!(asked[2].1.as_deref(), Some("third"));
    }

    #[tokio::test]
    async fn a_list_without_an_end_is_an_error() {
        let pages = Cell::new(0);
        let mut taken = 0;
        let list = |_| {
            pages.set(pages.get() + 1);
            async { Ok(page(500, Some("more"))) }
        };
        let ended = of(&ListParams::default(), list, |_| taken += 1).await;
        let error = ended.unwrap_err().to_string();
        assert!(error.contains("more than 20000 objects"), "{error}");
        assert!(taken <= MOST && pages.get() <= MOST / 500 + 1, "{taken}");
    }
}
