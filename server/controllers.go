package server

import (
	"fmt"
	"slices"
	"strings"

	"github.com/yare-project/yare/apiserver/authn"
	"github.com/yare-project/yare/controllers"
	"github.com/yare-project/yare/controllers/nodeipam"
	"github.com/yare-project/yare/internal/pki"
)

// controllerNames are what kube-controller-manager's --controllers calls the loops whose names differ from that by more than the ending "-controller"
// (Kubernetes, cmd/kube-controller-manager/names). The first of several is shown to users.
var controllerNames = map[string][]string{
	"generic-garbage-collector":    {"garbage-collector-controller"},
	"service-account":              {"serviceaccount-controller"},
	"root-ca-cert-publisher":       {"root-ca-certificate-publisher-controller"},
	"replication":                  {"replicationcontroller-controller"},
	"daemon-set":                   {"daemonset-controller"},
	"endpoint":                     {"endpoints-controller"},
	"endpointslicemirroring":       {"endpointslice-mirroring-controller"},
	"resource-claim":               {"resourceclaim-controller"},
	"node":                         {"node-lifecycle-controller"},
	"persistent-volume-binder":     {"persistentvolume-binder-controller"},
	"expand-controller":            {"persistentvolume-expander-controller"},
	"volume-protection-controller": {"persistentvolume-protection-controller", "persistentvolumeclaim-protection-controller"},
	"certificates":                 {"certificatesigningrequest-signing-controller", "certificatesigningrequest-approving-controller", "certificatesigningrequest-cleaner-controller"},
}

// namesOf are the names by which --controllers knows a loop.
func namesOf(loop string) []string {
	if names, ok := controllerNames[loop]; ok {
		return names
	}
	return []string{strings.TrimSuffix(loop, "-controller") + "-controller"}
}

// loopNames are the loops' own names.
func loopNames() []string {
	var out []string
	for _, d := range controllers.All(controllers.Config{Signer: (*pki.Authority)(nil), SignSecret: (*authn.TokenIssuer)(nil).IssueForSecret, NodeIPAM: &nodeipam.Config{}}) {
		out = append(out, d.Name)
	}
	return out
}

// Controllers are the names of all loops, as Config.Controllers takes them.
func Controllers() []string {
	var out []string
	for _, loop := range loopNames() {
		out = append(out, namesOf(loop)...)
	}
	slices.Sort(out)
	return out
}

// called tells whether an entry of --controllers, without its sign, means a loop: by Kubernetes' name, the same without its ending, or the loop's own.
func called(entry, loop string) bool {
	return entry == loop || slices.ContainsFunc(namesOf(loop), func(n string) bool { return entry == n || entry+"-controller" == n })
}

// Runs tells whether a loop of this name is wanted. The first word about it counts, and "*" only if there is none.
func (c *Config) Runs(loop string) bool {
	all := c.Controllers == nil && !c.APIOnly
	for _, entry := range c.Controllers {
		name, without := strings.CutPrefix(entry, "-")
		if called(name, loop) {
			return !without
		}
		all = all || entry == "*"
	}
	return all
}

func (c *Config) checkControllers() error {
	if len(c.Controllers) == 0 {
		return nil
	}
	loops := loopNames()
	for _, entry := range c.Controllers {
		name := strings.TrimPrefix(entry, "-")
		if entry != "*" && !slices.ContainsFunc(loops, func(loop string) bool { return called(name, loop) }) {
			return fmt.Errorf("--controllers %q is none of the controllers: %s", entry, strings.Join(Controllers(), ", "))
		}
	}
	return nil
}
