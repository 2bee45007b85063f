import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.informers.SharedIndexInformer;
import io.fabric8.kubernetes.client.utils.Serialization;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.TreeMap;

/**
 * Informers of fabric8's client, over WebSockets, which are its default, and over HTTP. Each line on
 * standard input is answered with the objects of all stores, as JSON: informer, then name, then
 * version, label and value.
 */
public class Informers {
  public static void main(String[] args) throws Exception {
    Map<String, SharedIndexInformer<ConfigMap>> informers = new TreeMap<>();
    for (boolean http : new boolean[] {false, true}) {
      String name = http ? "http" : "websocket";
      informers.put(name, client(http).configMaps().inNamespace("default").inform());
      informers.put(
          name + "-selector",
          client(http).configMaps().inNamespace("default").withLabel("parity", "1").inform());
    }
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    while (in.readLine() != null) {
      Map<String, Map<String, String>> told = new TreeMap<>();
      informers.forEach(
          (name, informer) -> {
            Map<String, String> held = new TreeMap<>();
            for (ConfigMap m : informer.getStore().list()) {
              held.put(
                  m.getMetadata().getName(),
                  m.getMetadata().getResourceVersion()
                      + " "
                      + of(m.getMetadata().getLabels(), "parity")
                      + " "
                      + of(m.getData(), "value"));
            }
            told.put(name, held);
          });
      System.out.println(Serialization.asJson(told).replace("\n", ""));
    }
    System.exit(0); // the informers' threads wait for events
  }

  private static KubernetesClient client(boolean http) {
    Config config =
        new ConfigBuilder(Config.empty())
            .withMasterUrl(System.getenv("SERVER"))
            .withCaCertFile(System.getenv("CA_FILE"))
            .withOauthToken(System.getenv("TOKEN"))
            .withOnlyHttpWatches(http)
            .build();
    return new KubernetesClientBuilder().withConfig(config).build();
  }

  private static String of(Map<String, String> all, String key) {
    return all == null ? "" : all.getOrDefault(key, "");
  }
}
