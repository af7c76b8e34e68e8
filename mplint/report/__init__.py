"""Reports: findings as text, as lines for tools, as JSON, as GitHub annotations and as SARIF."""
