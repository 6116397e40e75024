package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// rule is what becomes of a flag of kube-apiserver 1.36 that Yare's own commands do not have.
type rule struct {
	boolean bool
	// here says that this command refuses the flag although Yare's others have it.
	here bool
	// refuse is why the flag cannot be used; empty: it changes nothing for a client, and is taken.
	refuse string
	// check, when set, decides by the value.
	check func(value string) error
}

func (r rule) judge(value string) error {
	switch {
	case r.check != nil:
		return r.check(value)
	case r.refuse != "":
		return errors.New(r.refuse)
	}
	return nil
}

func (r rule) help() string {
	switch {
	case r.check != nil:
		return "taken where it asks for what Yare does anyway"
	case r.refuse != "":
		return "refused: " + r.refuse
	}
	return "taken, and changes nothing"
}

// only takes the value that describes what is done anyway.
func only(want, why string) rule {
	return rule{boolean: want == "true" || want == "false", check: func(value string) error {
		if value == want {
			return nil
		}
		if b, err := strconv.ParseBool(value); err == nil && strconv.FormatBool(b) == want {
			return nil
		}
		return fmt.Errorf("%s; leave the flag out", why)
	}}
}

// checkGates takes features as they are by default in Kubernetes 1.36.
func checkGates(value string) error {
	for _, entry := range strings.Split(value, ",") {
		name, want, _ := strings.Cut(entry, "=")
		on, err := strconv.ParseBool(want)
		if err != nil {
			return fmt.Errorf("%q is not name=true or name=false", entry)
		}
		if spec, known := utilfeature.DefaultMutableFeatureGate.GetAll()[featuregate.Feature(name)]; !known || spec.Default != on {
			return fmt.Errorf("features are as Kubernetes 1.36 has them by default, and %s is not known to be %t there", name, on)
		}
	}
	return nil
}

const (
	fixedEtcd      = "there is no etcd: state is in this process's memory"
	fixedTLS       = "TLS is 1.2 or newer with Go's choice of ciphers and curves"
	fixedKubelets  = "this command has no nodes to talk to"
	fixedTelemetry = "traces are not a flag of this command"
)

// ownFlags are those of kube-apiserver that Yare's own commands have, with the same meaning.
var ownFlags = []string{
	"admission-control-config-file", "advertise-address", "anonymous-auth", "api-audiences", "audit-log-batch-buffer-size",
	"audit-log-batch-max-size", "audit-log-batch-max-wait", "audit-log-batch-throttle-burst", "audit-log-batch-throttle-enable",
	"audit-log-batch-throttle-qps", "audit-log-compress", "audit-log-format", "audit-log-maxage", "audit-log-maxbackup", "audit-log-maxsize",
	"audit-log-mode", "audit-log-path", "audit-log-truncate-enabled", "audit-log-truncate-max-batch-size", "audit-log-truncate-max-event-size",
	"audit-log-version", "audit-policy-file", "audit-webhook-batch-buffer-size", "audit-webhook-batch-initial-backoff",
	"audit-webhook-batch-max-size", "audit-webhook-batch-max-wait", "audit-webhook-batch-throttle-burst", "audit-webhook-batch-throttle-enable",
	"audit-webhook-batch-throttle-qps", "audit-webhook-config-file", "audit-webhook-initial-backoff", "audit-webhook-mode",
	"audit-webhook-truncate-enabled", "audit-webhook-truncate-max-batch-size", "audit-webhook-truncate-max-event-size", "audit-webhook-version",
	"authentication-config", "authentication-token-webhook-cache-ttl", "authentication-token-webhook-config-file",
	"authentication-token-webhook-version", "authorization-config", "authorization-mode", "authorization-webhook-cache-authorized-ttl",
	"authorization-webhook-cache-unauthorized-ttl", "authorization-webhook-config-file", "authorization-webhook-version", "bind-address",
	"client-ca-file", "default-not-ready-toleration-seconds", "default-unreachable-toleration-seconds",
	"disable-admission-plugins", "enable-admission-plugins", "enable-priority-and-fairness", "max-mutating-requests-inflight",
	"max-requests-inflight", "min-request-timeout", "oidc-ca-file", "oidc-client-id", "oidc-groups-claim", "oidc-groups-prefix", "oidc-issuer-url",
	"oidc-required-claim", "oidc-signing-algs", "oidc-username-claim", "oidc-username-prefix", "proxy-client-cert-file", "proxy-client-key-file",
	"request-timeout", "requestheader-allowed-names", "requestheader-client-ca-file", "requestheader-extra-headers-prefix",
	"requestheader-group-headers", "requestheader-uid-headers", "requestheader-username-headers", "service-account-extend-token-expiration",
	"service-account-issuer", "service-account-jwks-uri", "service-account-key-file", "service-account-max-token-expiration",
	"service-account-signing-key-file", "service-node-port-range", "shutdown-delay-duration", "tls-cert-file", "tls-private-key-file",
	"token-auth-file",
}

// kubeAPIServerFlags are the other flags of kube-apiserver 1.36.
var kubeAPIServerFlags = map[string]rule{
	"authorization-policy-file":                   {refuse: "ABAC is not to be had: use RBAC"},
	"encryption-provider-config":                  {here: true, refuse: "nothing is at rest: state is in this process's memory"},
	"encryption-provider-config-automatic-reload": {boolean: true, here: true, refuse: "nothing is at rest: state is in this process's memory"},
	"runtime-config":                              {refuse: "which versions are served is fixed: those that Kubernetes 1.36 serves by default"},
	"feature-gates":                               {check: checkGates},
	"service-account-signing-endpoint":            {refuse: "signing by another program is not to be had: give --service-account-signing-key-file"},
	"service-account-lookup":                      only("true", "accounts are always looked up"),
	"allow-privileged":                            only("true", "privileged pods are allowed; PodSecurity decides where"),
	"enable-bootstrap-token-auth":                 {boolean: true},
	"event-ttl":                                   only("1h0m0s", "events are kept for an hour"),
	"cors-allowed-origins":                        {refuse: "browsers of other origins are not let in"},
	"strict-transport-security-directives":        {refuse: "browsers are not told to insist on HTTPS"},
	"external-hostname":                           {refuse: "documents have addresses relative to the server"},
	"tls-cipher-suites":                           {refuse: fixedTLS},
	"tls-curve-preferences":                       {refuse: fixedTLS},
	"tls-min-version":                             only("VersionTLS12", fixedTLS),
	"tls-sni-cert-key":                            {refuse: "one certificate is served to everybody"},
	"disable-http2-serving":                       only("false", "HTTP/2 is always served"),
	"egress-selector-config-file":                 {refuse: "there is one network"},
	"tracing-config-file":                         {refuse: fixedTelemetry},
	"etcd-cafile":                                 {refuse: fixedEtcd},
	"etcd-certfile":                               {refuse: fixedEtcd},
	"etcd-keyfile":                                {refuse: fixedEtcd},
	"etcd-servers-overrides":                      {refuse: fixedEtcd},
	"etcd-prefix":                                 {refuse: fixedEtcd},
	"storage-backend":                             {refuse: fixedEtcd},
	"etcd-compaction-interval":                    {},
	"etcd-count-metric-poll-period":               {},
	"etcd-db-metric-poll-interval":                {},
	"etcd-healthcheck-timeout":                    {},
	"etcd-readycheck-timeout":                     {},
	"storage-media-type":                          {},
	"storage-initialization-timeout":              {},
	"watch-cache":                                 {boolean: true},
	"watch-cache-sizes":                           {},
	"default-watch-cache-size":                    {},
	"delete-collection-workers":                   {},
	"enable-garbage-collector":                    {boolean: true},
	"endpoint-reconciler-type":                    {},
	"apiserver-count":                             {},
	"http2-max-streams-per-connection":            {},
	"goaway-chance":                               {},
	"lease-reuse-duration-seconds":                {},
	"livez-grace-period":                          {},
	"shutdown-send-retry-after":                   {boolean: true},
	"shutdown-watch-termination-grace-period":     {},
	"permit-address-sharing":                      {boolean: true},
	"permit-port-sharing":                         {boolean: true},
	"profiling":                                   {boolean: true},
	"contention-profiling":                        {boolean: true},
	"debug-socket-path":                           {refuse: "profiles are not to be had from this command"},
	"enable-logs-handler":                         {boolean: true},
	"enable-aggregator-routing":                   {boolean: true},
	"aggregator-reject-forwarding-redirect":       {boolean: true},
	"max-connection-bytes-per-sec":                only("0", "streams are not slowed down"),
	"peer-ca-file":                                {refuse: "this server has no peers"},
	"peer-advertise-ip":                           {refuse: "this server has no peers"},
	"peer-advertise-port":                         {refuse: "this server has no peers"},
	"coordinated-leadership-lease-duration":       {},
	"coordinated-leadership-renew-deadline":       {},
	"coordinated-leadership-retry-period":         {},
	"kubelet-certificate-authority":               {refuse: fixedKubelets},
	"kubelet-client-certificate":                  {refuse: fixedKubelets},
	"kubelet-client-key":                          {refuse: fixedKubelets},
	"kubelet-preferred-address-types":             {refuse: fixedKubelets},
	"kubelet-timeout":                             {refuse: fixedKubelets},
	"kubernetes-service-node-port":                only("0", "the Service kubernetes has a cluster address"),
	"emulated-version":                            {refuse: "the API is that of Kubernetes 1.36"},
	"min-compatibility-version":                   {refuse: "the API is that of Kubernetes 1.36"},
	"emulation-forward-compatible":                {boolean: true},
	"runtime-config-emulation-forward-compatible": {boolean: true},
	"allow-metric-labels":                         {refuse: "metrics have their own labels"},
	"disabled-metrics":                            {},
	"show-hidden-metrics-for-version":             {},
	"logging-format":                              only("text", "logs are text"),
	"log-flush-frequency":                         {},
	"log-json-info-buffer-size":                   {},
	"log-json-split-stream":                       {boolean: true},
	"log-text-info-buffer-size":                   {},
	"log-text-split-stream":                       {boolean: true},
	"vmodule":                                     {},
}
