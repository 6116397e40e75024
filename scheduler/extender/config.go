package extender

import (
	"fmt"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Config is one entry of extenders in kubescheduler.config.k8s.io/v1. A verb that is empty is not used.
type Config struct {
	URLPrefix        string            `json:"urlPrefix"`
	FilterVerb       string            `json:"filterVerb,omitempty"`
	PreemptVerb      string            `json:"preemptVerb,omitempty"`
	PrioritizeVerb   string            `json:"prioritizeVerb,omitempty"`
	Weight           int64             `json:"weight,omitempty"` // of its ratings
	BindVerb         string            `json:"bindVerb,omitempty"`
	EnableHTTPS      bool              `json:"enableHTTPS,omitempty"`
	TLSConfig        *TLS              `json:"tlsConfig,omitempty"`
	HTTPTimeout      metav1.Duration   `json:"httpTimeout,omitempty"`      // of each call; 5 s if zero
	NodeCacheCapable bool              `json:"nodeCacheCapable,omitempty"` // it knows the nodes: names will do
	ManagedResources []ManagedResource `json:"managedResources,omitempty"` // it is asked only about pods that want one of these, or about all if there are none
	Ignorable        bool              `json:"ignorable,omitempty"`        // pods are placed without it when it fails
}

// TLS says how an extender is reached over HTTPS.
type TLS struct {
	Insecure   bool   `json:"insecure,omitempty"`
	ServerName string `json:"serverName,omitempty"`
	CertFile   string `json:"certFile,omitempty"`
	KeyFile    string `json:"keyFile,omitempty"`
	CAFile     string `json:"caFile,omitempty"`
	CertData   []byte `json:"certData,omitempty"`
	KeyData    []byte `json:"keyData,omitempty"`
	CAData     []byte `json:"caData,omitempty"`
}

// ManagedResource is an extended resource that an extender cares for.
type ManagedResource struct {
	Name               string `json:"name"`
	IgnoredByScheduler bool   `json:"ignoredByScheduler,omitempty"` // NodeResourcesFit leaves it to the extender
}

// Check refuses what kube-scheduler refuses, in its words, and an extender that could not be reached or believed.
func Check(list []Config, path *field.Path) (errs field.ErrorList) {
	binders, managed := 0, map[string]bool{}
	for k := range list {
		c, at := &list[k], path.Index(k)
		errs = append(errs, c.checkURL(at)...)
		if c.PrioritizeVerb != "" && c.Weight <= 0 {
			errs = append(errs, field.Invalid(at.Child("weight"), c.Weight, "must have a positive weight applied to it"))
		}
		if c.HTTPTimeout.Duration < 0 {
			errs = append(errs, field.Invalid(at.Child("httpTimeout"), c.HTTPTimeout.Duration.String(), "must not be negative"))
		}
		if c.BindVerb != "" {
			binders++
		}
		for j, r := range c.ManagedResources {
			name := at.Child("managedResources").Index(j).Child("name")
			errs = append(errs, checkResource(r.Name, name)...)
			if managed[r.Name] {
				errs = append(errs, field.Invalid(name, r.Name, "duplicate extender managed resource name"))
			}
			managed[r.Name] = true
		}
	}
	if binders > 1 {
		errs = append(errs, field.Invalid(path, fmt.Sprintf("found %d extenders implementing bind", binders), "only one extender can implement bind"))
	}
	return errs
}

func (c *Config) checkURL(at *field.Path) (errs field.ErrorList) {
	u, err := url.Parse(c.URLPrefix)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		errs = append(errs, field.Invalid(at.Child("urlPrefix"), c.URLPrefix, "want a URL of http or https with a host"))
	}
	t := c.TLSConfig
	if c.EnableHTTPS && (t == nil || !t.Insecure && t.CAFile == "" && len(t.CAData) == 0) {
		errs = append(errs, field.Required(at.Child("tlsConfig"), "who answers could not be verified: set caFile or caData, or insecure: true to do without"))
	}
	return errs
}

func checkResource(name string, at *field.Path) (errs field.ErrorList) {
	for _, msg := range validation.IsQualifiedName(name) {
		errs = append(errs, field.Invalid(at, name, msg))
	}
	if len(errs) == 0 && (!strings.Contains(name, "/") || strings.Contains(name, corev1.ResourceDefaultNamespacePrefix) || strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix)) {
		errs = append(errs, field.Invalid(at, name, "is an invalid extended resource name"))
	}
	return errs
}
