package structured

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	"github.com/yare-project/yare/internal/reread"
)

// Flags are kube-apiserver's --oidc flags.
type Flags struct {
	IssuerURL, ClientID, CAFile string
	// UsernameClaim is "sub" unless said otherwise. UsernamePrefix is the issuer's URL and "#" if it is empty, but with the claim "email"; "-" means none.
	UsernameClaim, UsernamePrefix string
	GroupsClaim, GroupsPrefix     string
	// SigningAlgs are those of RFC 7518 that signatures may use.
	SigningAlgs []string
	// RequiredClaims must be in the token, with these values.
	RequiredClaims map[string]string
}

// DefaultFlags are the values of flags that are not given.
func DefaultFlags() Flags { return Flags{UsernameClaim: "sub", SigningAlgs: []string{"RS256"}} }

// set tells whether any flag was given.
func (f *Flags) set() bool {
	d := DefaultFlags()
	return f.IssuerURL != "" || f.ClientID != "" || f.CAFile != "" || f.UsernamePrefix != "" || f.GroupsClaim != "" || f.GroupsPrefix != "" ||
		len(f.RequiredClaims) > 0 || f.UsernameClaim != "" && f.UsernameClaim != d.UsernameClaim ||
		len(f.SigningAlgs) > 0 && !slices.Equal(f.SigningAlgs, d.SigningAlgs)
}

// Wanted tells whether there is anything to do for this package.
func (c *Config) Wanted() bool { return c.File != "" || c.Flags.set() }

// configuration is what the flags mean as a file.
func (f *Flags) configuration() (*apiserver.AuthenticationConfiguration, error) {
	if f.IssuerURL == "" || f.ClientID == "" {
		return nil, errors.New("--oidc-issuer-url and --oidc-client-id go together and with every other --oidc flag: give both")
	}
	claim, prefix := f.UsernameClaim, f.UsernamePrefix
	if claim == "" {
		claim = DefaultFlags().UsernameClaim
	}
	switch {
	case prefix == "-":
		prefix = ""
	case prefix == "" && claim != "email":
		prefix = f.IssuerURL + "#"
	}
	provider := apiserver.JWTAuthenticator{
		Issuer:        apiserver.Issuer{URL: f.IssuerURL, Audiences: []string{f.ClientID}},
		ClaimMappings: apiserver.ClaimMappings{Username: apiserver.PrefixedClaimOrExpression{Claim: claim, Prefix: &prefix}},
	}
	if f.GroupsClaim != "" {
		groups := f.GroupsPrefix
		provider.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Claim: f.GroupsClaim, Prefix: &groups}
	}
	if f.CAFile != "" {
		ca, err := reread.Read(f.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--oidc-ca-file: %w", err)
		}
		provider.Issuer.CertificateAuthority = string(ca)
	}
	for _, claim := range slices.Sorted(maps.Keys(f.RequiredClaims)) {
		provider.ClaimValidationRules = append(provider.ClaimValidationRules, apiserver.ClaimValidationRule{Claim: claim, RequiredValue: f.RequiredClaims[claim]})
	}
	return &apiserver.AuthenticationConfiguration{JWT: []apiserver.JWTAuthenticator{provider}}, nil
}

// decode reads a file of any version that Kubernetes 1.36 knows. Unknown and repeated fields are errors.
func decode(data []byte) (*apiserver.AuthenticationConfiguration, error) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	obj, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), data)
	if err != nil {
		return nil, err
	}
	config, ok := obj.(*apiserver.AuthenticationConfiguration)
	if !ok {
		return nil, fmt.Errorf("it is a %T: give an AuthenticationConfiguration", obj)
	}
	return config, nil
}

// validate refuses what Kubernetes refuses, and egress selectors: there is one network here.
func validate(compiler authenticationcel.Compiler, config *apiserver.AuthenticationConfiguration, reserved []string) error {
	errs := validation.ValidateAuthenticationConfiguration(compiler, config, reserved)
	for i, provider := range config.JWT {
		if kind := provider.Issuer.EgressSelectorType; kind != "" {
			errs = append(errs, field.Forbidden(field.NewPath("jwt").Index(i).Child("issuer", "egressSelectorType"),
				"providers are called over the machine's own network: leave it out"))
		}
	}
	return errs.ToAggregate()
}
