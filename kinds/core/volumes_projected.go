package core

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// projectedCheck checks that no two sources write the same file.
type projectedCheck struct {
	*problems
	volume *field.Path
	paths  sets.Set[string]
}

func checkProjected(p *problems, v *corev1.ProjectedVolumeSource, path *field.Path) {
	p.mode(path.Child("defaultMode"), v.DefaultMode)
	c := &projectedCheck{problems: p, volume: path, paths: sets.New[string]()}
	for i := range v.Sources {
		c.source(&v.Sources[i], path.Child("sources").Index(i))
	}
}

func (c *projectedCheck) source(s *corev1.VolumeProjection, path *field.Path) {
	n := 0
	if s.Secret != nil {
		n++
		c.items(s.Secret.Name, s.Secret.Items, path.Child("secret"))
	}
	if s.ConfigMap != nil {
		n++
		c.items(s.ConfigMap.Name, s.ConfigMap.Items, path.Child("configMap"))
	}
	if s.DownwardAPI != nil {
		n++
		for i := range s.DownwardAPI.Items {
			file := &s.DownwardAPI.Items[i]
			checkDownwardFile(c.problems, file, path.Child("downwardAPI", "items").Index(i))
			c.file(file.Path, file.Path)
		}
	}
	if s.ServiceAccountToken != nil {
		n++
		c.token(s.ServiceAccountToken, path.Child("serviceAccountToken"))
	}
	if s.ClusterTrustBundle != nil {
		n++
		c.trustBundle(s.ClusterTrustBundle, path.Child("clusterTrustBundle"))
	}
	if s.PodCertificate != nil {
		n++
		c.certificate(s.PodCertificate, path.Child("podCertificate"))
	}
	if n > 1 {
		c.forbidden(path, "may not specify more than 1 volume type per source")
	}
}

func (c *projectedCheck) file(name, shown string) {
	if name == "" {
		return
	}
	if c.paths.Has(name) {
		c.invalid(c.volume, shown, "conflicting duplicate paths")
	}
	c.paths.Insert(name)
}

func (c *projectedCheck) items(name string, items []corev1.KeyToPath, at *field.Path) {
	c.needs(at.Child("name"), name)
	checkKeyPaths(c.problems, items, at.Child("items"))
	for _, item := range items {
		c.file(item.Path, name)
	}
}

func (c *projectedCheck) token(t *corev1.ServiceAccountTokenProjection, at *field.Path) {
	if t.ExpirationSeconds != nil && *t.ExpirationSeconds < 600 {
		c.invalid(at.Child("expirationSeconds"), *t.ExpirationSeconds, "may not specify a duration less than 10 minutes")
	}
	if t.ExpirationSeconds != nil && *t.ExpirationSeconds > 1<<32 {
		c.invalid(at.Child("expirationSeconds"), *t.ExpirationSeconds, "may not specify a duration larger than 2^32 seconds")
	}
	if c.needs(at.Child("path"), t.Path) {
		unreservedPath(c.problems, t.Path, at.Child("path"))
	}
}

func (c *projectedCheck) trustBundle(b *corev1.ClusterTrustBundleProjection, at *field.Path) {
	switch {
	case b.Name != nil && b.SignerName != nil:
		c.invalid(at, b, "only one of name and signerName may be used")
	case b.Name != nil:
		c.trustBundleName(*b.Name, at.Child("name"))
		if b.LabelSelector != nil {
			c.invalid(at.Child("labelSelector"), b.LabelSelector, "labelSelector must be unset if name is specified")
		}
	case b.SignerName != nil:
		checkSignerName(c.problems, *b.SignerName, at.Child("signerName"))
		checkSelector(c.problems, b.LabelSelector, at.Child("labelSelector"))
	default:
		c.required(at, "either name or signerName must be specified")
	}
	c.needs(at.Child("path"), b.Path)
	unreservedPath(c.problems, b.Path, at.Child("path"))
	c.file(b.Path, b.Path)
}

// trustBundleName checks the name of a ClusterTrustBundle: that of its signer with ":" for "/", a ":" and a subdomain, or only a subdomain.
func (c *projectedCheck) trustBundleName(name string, at *field.Path) {
	if name == "" {
		c.required(at, "must be a valid object name")
	}
	for _, message := range subdomainName(name[strings.LastIndex(name, ":")+1:], false) {
		c.invalid(at, name, "not a valid clustertrustbundlename: "+message)
	}
}

const (
	minCertificateSeconds     = 3600
	maxCertificateSeconds     = 91 * 24 * 3600
	maxKubernetesCertificate  = 24 * 3600
	kubernetesSignerDomain    = "kubernetes.io"
	maxSignerNameLength       = validation.DNS1123SubdomainMaxLength + 1 + validation.DNS1123SubdomainMaxLength + 1 + validation.DNS1123LabelMaxLength
	signerNameForm            = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
	signerNameNeedsTwoSegment = "should be a domain with at least two segments separated by dots"
)

func (c *projectedCheck) certificate(cert *corev1.PodCertificateProjection, at *field.Path) {
	checkSignerName(c.problems, cert.SignerName, at.Child("signerName"))
	if cert.UserAnnotations != nil {
		for key := range cert.UserAnnotations {
			c.add(validation.IsDomainPrefixedKey(at.Child("userAnnotations"), strings.ToLower(key))...)
		}
		if apivalidation.ValidateAnnotationsSize(cert.UserAnnotations) != nil {
			c.add(field.TooLong(at.Child("userAnnotations"), "", apivalidation.TotalAnnotationSizeLimitB))
		}
	}
	oneOf(c.problems, at.Child("keyType"), cert.KeyType, "RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
	if s := cert.MaxExpirationSeconds; s != nil {
		most := int32(maxCertificateSeconds)
		domain, _, _ := strings.Cut(cert.SignerName, "/")
		if domain == kubernetesSignerDomain || strings.HasSuffix(domain, "."+kubernetesSignerDomain) {
			most = maxKubernetesCertificate
		}
		if *s < minCertificateSeconds {
			c.invalid(at.Child("maxExpirationSeconds"), *s, fmt.Sprintf("if provided, maxExpirationSeconds must be >= %d", minCertificateSeconds))
		}
		if *s > most {
			c.invalid(at.Child("maxExpirationSeconds"), *s, fmt.Sprintf("if provided, maxExpirationSeconds must be <= %d", most))
		}
	}
	files := 0
	for _, f := range []struct{ field, path string }{
		{"credentialBundlePath", cert.CredentialBundlePath}, {"keyPath", cert.KeyPath}, {"certificateChainPath", cert.CertificateChainPath},
	} {
		if f.path == "" {
			continue
		}
		files++
		unreservedPath(c.problems, f.path, at.Child(f.field))
		c.file(f.path, f.path)
	}
	if files == 0 {
		c.required(at, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath")
	}
}

// checkSignerName checks <domain>/<path>, long enough for a namespaced name in the path.
func checkSignerName(p *problems, name string, at *field.Path) {
	if !p.needs(at, name) {
		return
	}
	domain, rest, ok := strings.Cut(name, "/")
	if !ok || strings.Contains(rest, "/") {
		p.invalid(at, name, signerNameForm)
		return
	}
	if len(domain) > validation.DNS1123SubdomainMaxLength {
		p.add(field.TooLong(at, "", validation.DNS1123SubdomainMaxLength))
	}
	labels := func(text string, check func(string) []string) {
		for _, label := range strings.Split(text, ".") {
			messages := check(label)
			for _, m := range messages {
				p.invalid(at, text, fmt.Sprintf("validating label %q: %s", label, m))
			}
			if len(messages) > 0 {
				return
			}
		}
	}
	labels(domain, validation.IsDNS1123Label)
	if !strings.Contains(domain, ".") {
		p.invalid(at, domain, signerNameNeedsTwoSegment)
	}
	labels(rest, validation.IsDNS1123Subdomain)
	if len(name) > maxSignerNameLength {
		p.add(field.TooLong(at, "", maxSignerNameLength))
	}
}
