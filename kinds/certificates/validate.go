package certificates

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// legacySigner was a catch-all of the beta API, which v1 does not take.
const legacySigner = "kubernetes.io/legacy-unknown"

var usages = []certificatesv1.KeyUsage{
	certificatesv1.UsageSigning, certificatesv1.UsageDigitalSignature, certificatesv1.UsageContentCommitment, certificatesv1.UsageKeyEncipherment,
	certificatesv1.UsageKeyAgreement, certificatesv1.UsageDataEncipherment, certificatesv1.UsageCertSign, certificatesv1.UsageCRLSign,
	certificatesv1.UsageEncipherOnly, certificatesv1.UsageDecipherOnly, certificatesv1.UsageAny, certificatesv1.UsageServerAuth,
	certificatesv1.UsageClientAuth, certificatesv1.UsageCodeSigning, certificatesv1.UsageEmailProtection, certificatesv1.UsageSMIME,
	certificatesv1.UsageIPsecEndSystem, certificatesv1.UsageIPsecTunnel, certificatesv1.UsageIPsecUser, certificatesv1.UsageTimestamping,
	certificatesv1.UsageOCSPSigning, certificatesv1.UsageMicrosoftSGC, certificatesv1.UsageNetscapeSGC,
}

func validateRequest(r, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	if old != nil {
		return nil // the spec was carried over, the status is not touched here
	}
	spec := field.NewPath("spec")
	var errs field.ErrorList
	if _, err := ParseRequest(r.Spec.Request); err != nil {
		errs = append(errs, field.Invalid(spec.Child("request"), r.Spec.Request, err.Error()))
	}
	errs = append(errs, validateUsages(r.Spec.Usages, spec.Child("usages"))...)
	errs = append(errs, validateSigner(r.Spec.SignerName, spec.Child("signerName"))...)
	if s := r.Spec.ExpirationSeconds; s != nil && *s < 600 {
		errs = append(errs, field.Invalid(spec.Child("expirationSeconds"), *s, "may not specify a duration less than 600 seconds (10 minutes)"))
	}
	return errs
}

// ParseRequest decodes a PEM-encoded PKCS#10 request and checks that it is signed with the key that it is for.
func ParseRequest(data []byte) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("there is more than one PEM block")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	return request, request.CheckSignature()
}

func validateUsages(in []certificatesv1.KeyUsage, at *field.Path) field.ErrorList {
	if len(in) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	for i, u := range in {
		if !slices.Contains(usages, u) {
			errs = append(errs, field.NotSupported(at.Index(i), u, slices.Sorted(slices.Values(usages))))
		}
		if slices.Contains(in[:i], u) {
			errs = append(errs, field.Duplicate(at.Index(i), u))
		}
	}
	return errs
}

// validateSigner wants <domain>/<path>: a domain of at least two labels (RFC 1123), then one or more labels with dots.
func validateSigner(name string, at *field.Path) field.ErrorList {
	switch domain, path, ok := strings.Cut(name, "/"); {
	case name == "":
		return field.ErrorList{field.Required(at, "")}
	case name == legacySigner:
		return field.ErrorList{field.Invalid(at, name, "the legacy signerName is not allowed via this API version")}
	case !ok || strings.Contains(path, "/"):
		return field.ErrorList{field.Invalid(at, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")}
	case len(name) > 571:
		return field.ErrorList{field.TooLong(at, "", 571)}
	default:
		var errs field.ErrorList
		for _, m := range validation.IsDNS1123Subdomain(domain) {
			errs = append(errs, field.Invalid(at, domain, fmt.Sprintf("validating label %q: %s", domain, m)))
		}
		if !strings.Contains(domain, ".") {
			errs = append(errs, field.Invalid(at, domain, "should be a domain with at least two segments separated by dots"))
		}
		for _, m := range validation.IsDNS1123Subdomain(path) {
			errs = append(errs, field.Invalid(at, path, fmt.Sprintf("validating label %q: %s", path, m)))
		}
		return errs
	}
}

// statusMay is what a subresource lets change.
type statusMay struct{ approve, setCertificate bool }

func validateStatus(r, old *certificatesv1.CertificateSigningRequest, may statusMay) field.ErrorList {
	status := field.NewPath("status")
	errs := validateConditions(r.Status.Conditions, status.Child("conditions"))
	errs = append(errs, validateDecision(r, old, may, status.Child("conditions"))...)
	at := status.Child("certificate")
	if err := checkCertificates(r.Status.Certificate); err != nil {
		errs = append(errs, field.Invalid(at, "<certificate data>", err.Error()))
	}
	if !bytes.Equal(r.Status.Certificate, old.Status.Certificate) {
		switch {
		case !may.setCertificate:
			errs = append(errs, field.Forbidden(at, "updates may not set certificate content"))
		case len(old.Status.Certificate) > 0:
			errs = append(errs, field.Forbidden(at, "updates may not modify existing certificate content"))
		}
	}
	return errs
}

// decided are the conditions that are final: they are true or absent, and stay.
var decided = []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed}

func validateConditions(conditions []certificatesv1.CertificateSigningRequestCondition, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[certificatesv1.RequestConditionType]bool{}
	for i, c := range conditions {
		allowed := []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown}
		if slices.Contains(decided, c.Type) {
			allowed = []corev1.ConditionStatus{corev1.ConditionTrue}
		}
		if c.Type == "" {
			errs = append(errs, field.Required(at.Index(i).Child("type"), ""))
		}
		switch {
		case c.Status == "":
			errs = append(errs, field.Required(at.Index(i).Child("status"), ""))
		case !slices.Contains(allowed, c.Status):
			errs = append(errs, field.NotSupported(at.Index(i).Child("status"), c.Status, allowed))
		}
		if seen[c.Type] {
			errs = append(errs, field.Duplicate(at.Index(i).Child("type"), c.Type))
		}
		seen[c.Type] = true
	}
	if seen[certificatesv1.CertificateApproved] && seen[certificatesv1.CertificateDenied] {
		errs = append(errs, field.Invalid(at, certificatesv1.CertificateDenied, "Approved and Denied conditions are mutually exclusive"))
	}
	return errs
}

func validateDecision(r, old *certificatesv1.CertificateSigningRequest, may statusMay, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, t := range decided {
		was, is := find(old, t), find(r, t)
		switch {
		case len(is) < len(was):
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("updates may not remove a condition of type %q", t)))
		case may.approve || t == certificatesv1.CertificateFailed:
		case len(is) > len(was):
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("updates may not add a condition of type %q", t)))
		case !equality.Semantic.DeepEqual(was, is):
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("updates may not modify a condition of type %q", t)))
		}
	}
	return errs
}

func find(r *certificatesv1.CertificateSigningRequest, t certificatesv1.RequestConditionType) []certificatesv1.CertificateSigningRequestCondition {
	var out []certificatesv1.CertificateSigningRequestCondition
	for _, c := range r.Status.Conditions {
		if c.Type == t {
			out = append(out, c)
		}
	}
	return out
}

func checkCertificates(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	blocks := 0
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		}
		if len(block.Headers) > 0 {
			return errors.New("no PEM block headers are permitted")
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return err
		}
		blocks++
	}
	if blocks == 0 {
		return errors.New("must contain at least one CERTIFICATE PEM block")
	}
	return nil
}
