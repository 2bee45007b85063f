//! Informers of kube-rs: each line on standard input is answered with the objects of all
//! stores, as JSON: informer, then name, then version, label and value.

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config, Resource, ResourceExt,
    config::AuthInfo,
    core::PartialObjectMeta,
    runtime::{WatchStreamExt, reflector, watcher},
};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, env, error::Error, fmt::Debug, sync::Arc};
use tokio::io::{AsyncBufReadExt, BufReader};

type Stores = BTreeMap<String, Box<dyn Fn() -> Value + Send + Sync>>;

fn follow<K, S>(name: &str, stores: &mut Stores, stream: S, value: fn(&K) -> String)
where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
    S: futures::Stream<Item = Result<watcher::Event<K>, watcher::Error>> + Send + 'static,
{
    let (store, writer) = reflector::store::<K>();
    let name = name.to_string();
    let label = name.clone();
    tokio::spawn(
        reflector(writer, stream.default_backoff()).for_each(move |event| {
            if let Err(err) = event {
                eprintln!("{label}: {err:?}");
            }
            futures::future::ready(())
        }),
    );
    let state = move || {
        let all = store.state().into_iter().map(|o: Arc<K>| {
            let parity = o.labels().get("parity").cloned().unwrap_or_default();
            let text = format!(
                "{} {} {}",
                o.resource_version().unwrap_or_default(),
                parity,
                value(&o)
            );
            (o.name_any(), Value::String(text))
        });
        Value::Object(all.collect::<Map<_, _>>())
    };
    stores.insert(name, Box::new(state));
}

fn value(m: &ConfigMap) -> String {
    m.data
        .as_ref()
        .and_then(|d| d.get("value").cloned())
        .unwrap_or_default()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut config = Config::new(env::var("SERVER")?.parse()?);
    config.root_cert_file = Some(env::var("CA_FILE")?.into());
    config.auth_info = AuthInfo {
        token: Some(env::var("TOKEN")?.into()),
        ..Default::default()
    };
    let mut stores = Stores::new();
    let lists = watcher::Config::default();
    let streams = watcher::Config::default().streaming_lists();
    for (name, config_of) in [("list", &lists), ("stream", &streams)] {
        // A separate client for each, with separate connections.
        let client = || Client::try_from(config.clone());
        let api = || client().map(|c| Api::namespaced(c, "default"));
        follow(name, &mut stores, watcher(api()?, config_of.clone()), value);
        let odd = config_of.clone().labels("parity=1");
        follow(
            &format!("{name}-selector"),
            &mut stores,
            watcher(api()?, odd),
            value,
        );
        let metadata = Api::<PartialObjectMeta<ConfigMap>>::namespaced(client()?, "default");
        let name = format!("{name}-metadata");
        follow(
            &name,
            &mut stores,
            watcher(metadata, config_of.clone()),
            |_| String::new(),
        );
    }
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while lines.next_line().await?.is_some() {
        let all: Map<_, _> = stores
            .iter()
            .map(|(name, state)| (name.clone(), state()))
            .collect();
        println!("{}", json!(all));
    }
    Ok(())
}
