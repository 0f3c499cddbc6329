//go:build soak

package access

// How many random policies TestIndexEqualsEnforce makes, and what it asks of each.
const randomPolicies, questionsEach = 312_500, 32 // 10,000,000 decisions
